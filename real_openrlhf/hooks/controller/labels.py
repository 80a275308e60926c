"""A rollout's class, from what the reward function returned: the one place where scores become labels."""

import logging
import math
from types import SimpleNamespace

import torch
from openrlhf.trainer.ppo_utils.experience import Experience

from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE

logger = logging.getLogger(__name__)

# A reward function may return this among its `extra_logs`: 1 for a wrong response without a readable answer, TRPA's
# lowest level. It is taken out here, so it is never a metric.
NO_ANSWER = "label/no_answer"


def label_rollouts(samples: list[Experience], args: SimpleNamespace) -> torch.Tensor:
    """(N,) labels; a reward that failed becomes *ignored*, and the batch's columns are completed for it."""
    size = args.rollout.n_samples_per_prompt
    labels = []
    for position, sample in enumerate(samples):
        first = samples[position // size * size]
        if sample.prompts != first.prompts:
            raise ValueError(f"rollout {position} is not of the same prompt as rollout {position // size * size}")
        score = math.nan if sample.scores is None else float(sample.scores[0])
        no_answer = sample.info.pop(NO_ANSWER, None)
        labels.append(
            label_of(
                score,
                empty=not bool(sample.action_mask.any()),
                truncated=bool(sample.truncated[0]),
                parsable=no_answer is None or float(no_answer[0]) == 0,
                threshold=args.algo.real.label_threshold,
                ignore_truncated=args.algo.real.truncated == "ignore",
                name=f"rollout {position} of prompt {sample.prompts[0][:80]!r}",
            )
        )
    complete_columns(samples)
    for sample in samples:
        sample.info.pop("score", None)  # nan there would make its logged mean nan
    return torch.tensor(labels, dtype=torch.long)


def complete_columns(samples: list[Experience]) -> None:
    """A reward that failed has no reward, score or extra logs: neutral ones, since rows must have the same columns."""
    failed = 0
    for sample in samples:
        sample.info.pop(NO_ANSWER, None)
        if sample.rewards is None:
            failed += 1
            sample.rewards = torch.zeros(1)
            sample.info["reward"] = torch.zeros(1)
        score = math.nan if sample.scores is None else float(sample.scores[0])
        sample.scores = torch.tensor([score], dtype=torch.float32)
    keys = set().union(*(sample.info for sample in samples))
    for sample in samples:
        for key in keys - sample.info.keys():
            sample.info[key] = torch.zeros(1)
    if failed:
        logger.warning(f"REAL: the reward of {failed} of {len(samples)} rollouts failed; they are ignored")


def label_of(
    score: float,
    *,
    empty: bool,
    truncated: bool,
    parsable: bool,
    threshold: float | None,
    ignore_truncated: bool,
    name: str,
) -> int:
    """The class of one rollout. A score that is neither 0 nor 1 is refused unless a threshold is given."""
    if math.isnan(score) or empty:
        return IGNORED
    if threshold is None and score not in (0.0, 1.0):
        raise ValueError(
            f"{name} has score {score:g}: REAL's labels are 0 or 1. Return 0 or 1 as `scores`, or give "
            "--algo.real.label_threshold"
        )
    if score > (0.5 if threshold is None else threshold):
        return POSITIVE
    if truncated and ignore_truncated:
        return IGNORED
    return NEGATIVE if parsable else UNPARSABLE
