"""The best rate of each method in a comparison that varied it, as `compare --algos` takes it, a line a method:

python examples/results/best_rates.py comparison/map/runs comparison/tune-rates/runs
"""

import sys
from collections import defaultdict
from pathlib import Path

from real_openrlhf.recipes.records import flags_of
from real_openrlhf.report.curves import VALIDATION, series, validation_sets
from real_openrlhf.report.read_runs import Run, read_runs

RATE = "--actor.adam.lr"
BATCH = "--train.batch_size"
UPDATES = 64, 32  # of the recipes, the first one where nothing is said; a map varies it too
TUNING = (1, 2)  # seeds; others are for what comes after


def best_rates(runs: list[Run]) -> dict[str, float]:
    """By the mean of the last validation; of rates that are level, the lower one."""
    sets = validation_sets(runs)
    ends: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        curve = series(run, VALIDATION, sets)
        flags = flags_of(run.meta)
        if run.seed in TUNING and run.counted and curve is not None and flags.get(BATCH, UPDATES[0]) in UPDATES:
            ends[run.algo][flags[RATE]].append(float(curve.values[-1]))
    return {
        algo: max(sorted(rates), key=lambda rate: sum(rates[rate]) / len(rates[rate])) for algo, rates in ends.items()
    }


if __name__ == "__main__":
    found, skipped = read_runs([Path(word) for word in sys.argv[1:]])
    if not found:
        sys.exit(f"no run in {sys.argv[1:]}: {skipped}")
    for algo, rate in best_rates(found).items():
        print(f"{algo} {RATE} {rate:g}")
