"""A reward for TRL, which takes a list of floats: an ungraded response gets the mean of its group, so advantage 0.

In the conversational format take `said[0]["content"]` and `str(asked)`.
"""

from itertools import groupby
from statistics import fmean

from same_answer import verify


def right(prompts, completions, answer, **columns):
    verdicts = [
        verify(said, gold, prompt=asked) for asked, said, gold in zip(prompts, completions, answer, strict=True)
    ]
    scores = []
    for _, group in groupby(
        zip(prompts, verdicts, strict=True), key=lambda pair: pair[0]
    ):  # num_generations rows in turn
        group = [verdict for _, verdict in group]
        mean = fmean([one.score for one in group if not one.ignored] or [0.0])
        scores += [mean if one.ignored else one.score for one in group]
    return scores
