"""What each method reached in equal steps and in equal time: a table of docs/results.md.

A mixed prompt has right and wrong answers. The time is that of the steps, without set-up and validation. Equal time is
what the fastest method took for all its steps in its slowest run; of the others the last validation counts that was
reached by then.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from real_openrlhf.report.curves import VALIDATION, series, validation_sets
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import compare
from real_openrlhf.report.statistics import estimate
from real_openrlhf.report.table_forms import Cell, Row, Table, words


def table(runs: Sequence[Run], _: Path) -> Table:
    (comparison,) = compare(runs)
    sets, rows = validation_sets(runs), []
    passed = {
        setting.label: [np.cumsum(run.logged["train"]["timing/step_total"].values) for run in setting.counted]
        for setting in comparison.settings
    }
    equal = min(max(seconds[-1] for seconds in of_runs) for of_runs in passed.values())
    for setting in comparison.settings:
        a_step, mixed, ends, steps, by_then = [], [], [], [], []
        for run, seconds in zip(setting.counted, passed[setting.label], strict=True):
            curve = series(run, VALIDATION, sets)
            a_step.append(seconds[-1] / len(seconds))
            all_right, all_wrong = (run.logged["train"][f"rollout/solve_{which}"].values for which in ("all", "none"))
            mixed.append(float((1 - all_right - all_wrong).mean()))
            ends.append(float(curve.values[-1]))
            reached = curve.steps <= max(np.searchsorted(seconds, equal, side="right"), curve.steps[0])
            steps.append(float(curve.steps[reached][-1]))
            by_then.append(float(curve.values[reached][-1]))
        cells = [Cell(number=estimate(values)) for values in (a_step, mixed, ends, steps, by_then)]
        rows.append(Row([words(setting.label), *cells, words(setting.seeds)]))
    columns = ["Method", "Seconds a step", "Mixed prompts", "Equal steps", "Steps in equal time", "Equal time", "Runs"]
    notes = [f"Held-out pass@1. Equal time: {equal:.0f} s of steps. ± is one standard error over runs."]
    return Table("equal_time", "In equal steps and in equal time", columns, [("", rows)], notes)
