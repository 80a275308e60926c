"""What each method learned on the pretrained model, and what it took: a table of docs/results.md.

A threshold is reached at the first step at which the mean training pass rate of the last five steps is at least that.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from real_openrlhf.report.curves import VALIDATION, over_training, series, validation_sets
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import compare
from real_openrlhf.report.statistics import Estimate, estimate
from real_openrlhf.report.table_forms import Cell, Row, Table, words

REACHED, WINDOW = 0.5, 5
COLUMNS = {  # beside what validation says: a title, the key that is logged, what is made of a run's values
    "Seconds a step": ("timing/step_total", np.mean),
    "Trained": ("update/trained_share", np.mean),
    "Entropy, last step": ("rollout/entropy", lambda values: values[-1]),
    "Spread of weights, largest": ("real/weight_cv", np.max),
    "Clipped updates": ("update/clipped_share", np.mean),
}


def table(runs: Sequence[Run], _: Path) -> Table:
    (comparison,) = compare(runs)
    sets, rows = validation_sets(runs), []
    for setting in comparison.settings:
        curves = [series(run, VALIDATION, sets) for run in setting.counted]
        first, last = ([float(curve.values[place]) for curve in curves] for place in (0, -1))
        rises = [after - before for before, after in zip(first, last, strict=True)]
        means = [over_training(curve) for curve in curves]
        cells = [Cell(number=estimate(values)) for values in (first, last, rises, means)]
        cells.append(words(reached(setting.counted)))
        cells += [Cell(number=over_runs(setting.counted, *column)) for column in COLUMNS.values()]
        rows.append(Row([words(setting.label), *cells, words(setting.seeds)]))
    columns = ["Method", "Before", "After", "Rise", "Mean over training", f"Steps to {REACHED:g}", *COLUMNS, "Runs"]
    notes = [
        "Before, After: held-out pass@1 at the first and the last evaluation. ± is one standard error over runs.",
        f"Steps to {REACHED:g}: until the mean training pass rate of {WINDOW} steps is there; median over runs.",
    ]
    return Table("learning", "A pretrained model on reasoning-gym", columns, [("", rows)], notes)


def over_runs(runs: Sequence[Run], key: str, of_run) -> Estimate | None:
    found = [of_run(run.logged["train"][key].values) for run in runs if key in run.logged["train"]]
    return estimate(found) if found else None


def reached(runs: Sequence[Run]) -> str:
    steps = []
    for run in runs:
        rates = run.logged["train"]["rollout/pass_rate"].values
        means = np.convolve(rates, np.ones(WINDOW) / WINDOW, "valid")
        there = np.flatnonzero(means >= REACHED)
        steps.append(there[0] + WINDOW if len(there) else np.inf)
    middle = float(np.median(steps))
    return f"{middle:g}" if np.isfinite(middle) else "not reached"
