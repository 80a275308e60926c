"""What wrong verdicts in training cost each method: a table of archive/weights.md.

A cost is a method's own run without noise less its run with it, by pairs of seeds. The last column compares two costs
of one seed: above 0 the method loses more than REAL.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from methods import METHODS

from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import over_training, validation
from real_openrlhf.report.statistics import estimate
from real_openrlhf.report.table_forms import BLOCK, Table

NOISES = {
    "right-to-wrong-0": "none",
    "right-to-wrong-0.4": "40 % of the right ones",
    "wrong-to-right-0.2": "20 % of the wrong ones",
}
CLEAN = next(iter(NOISES))
BySeed = dict[int, float]


def table(runs: Sequence[Run], _: Path) -> Table:
    sets = sorted(set.intersection(*(run.sets for run in runs)))
    ends: dict[tuple[str, str], BySeed] = {}
    means: dict[tuple[str, str], BySeed] = {}
    for run in runs:
        noise = re.search(r"noisy_(.*)\.jsonl", run.name)
        curve = validation(run, sets)
        if run.counted and noise and curve is not None and run.seed is not None:
            ends.setdefault((noise[1], run.algo), {})[run.seed] = curve.iloc[-1]
            means.setdefault((noise[1], run.algo), {})[run.seed] = over_training(curve)
    rows = []
    for noise, about in NOISES.items():
        for algo in METHODS:
            if (noise, algo) in means:
                cost = _cost(means, noise, algo) if noise != CLEAN else {}
                reals = _cost(means, noise, "real") if cost and algo != "real" else {}
                rows.append(
                    {
                        BLOCK: f"Verdicts made wrong: {about}",
                        "Method": METHODS[algo].label,
                        "Validation pass@1": estimate(ends[noise, algo].values()),
                        "Mean over training": estimate(means[noise, algo].values()),
                        "Cost": estimate(cost.values()),
                        "Cost less REAL's": estimate(cost[seed] - reals[seed] for seed in cost.keys() & reals.keys()),
                        "Runs": f"{len(means[noise, algo])} runs",
                    }
                )
    notes = ["Cost: of the mean over training, by pairs of seeds. ± is one standard error."]
    return Table("cost", "What wrong verdicts in training cost", rows, notes)


def _cost(means: dict[tuple[str, str], BySeed], noise: str, algo: str) -> BySeed:
    clean, noisy = means[CLEAN, algo], means[noise, algo]
    return {seed: clean[seed] - noisy[seed] for seed in clean.keys() & noisy.keys()}
