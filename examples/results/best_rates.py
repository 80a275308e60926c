"""The best rate of each method in a comparison that varied it, as `compare --algos` takes it, a line a method:

python examples/results/best_rates.py comparison/map/runs comparison/tune-rates/runs
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.curves import VALIDATION, series, validation_sets
from real_openrlhf.report.read_runs import Run, read_runs

RATE = "--actor.adam.lr"
BATCH = "--train.batch_size"
TOLD_APART = (
    "--algo.real.set",
    "--algo.real.tau",
    "--algo.advantage.is_correction_level",
    "--algo.advantage.is_correction_mode",
    "--algo.advantage.is_correction_threshold",
)
UPDATES = 64, 32  # of the recipes, the first one where nothing is said; a map varies it too
TUNING = (1, 2)  # seeds; others are for what comes after


def best_rates(runs: list[Run], over_training: bool = False) -> dict[str, float]:
    """{method and its own flags: rate} by the last validation, or the mean of all after step 0, over the tuning seeds.

    Of rates that are level, the lower one.
    """
    sets = validation_sets(runs)
    scores: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run, words in zip(runs, _words(runs), strict=True):
        curve = series(run, VALIDATION, sets)
        flags = flags_of(run.meta)
        if run.seed in TUNING and run.counted and curve is not None and flags.get(BATCH, UPDATES[0]) in UPDATES:
            values = curve.values[curve.steps > 0] if over_training else curve.values[-1:]
            scores[words][flags[RATE]].append(float(values.mean()))
    return {
        words: max(sorted(rates), key=lambda rate: sum(rates[rate]) / len(rates[rate]))
        for words, rates in scores.items()
    }


def _words(runs: list[Run]) -> Iterator[str]:
    """A run's method, with the flags that tell it from other runs of that method."""
    values: dict[str, dict[str, set]] = defaultdict(lambda: defaultdict(set))
    for run in runs:
        for flag in TOLD_APART:
            values[run.algo][flag].add(flags_of(run.meta).get(flag))
    for run in runs:
        own = {flag: flags_of(run.meta).get(flag) for flag in TOLD_APART if len(values[run.algo][flag]) > 1}
        yield " ".join([run.algo, *(f"{flag} {value}" for flag, value in own.items() if value is not None)])


if __name__ == "__main__":
    over_training = "--over-training" in sys.argv
    found, skipped = read_runs([Path(word) for word in sys.argv[1:] if word != "--over-training"])
    if not found:
        sys.exit(f"no run in {sys.argv[1:]}: {skipped}")
    for words, rate in best_rates(found, over_training).items():
        print(f"{words} {RATE} {rate:g}")
