"""Tables of the campaigns with a pretrained model; a page names the function, and refresh.py calls it."""

from collections.abc import Sequence

import numpy as np

from real_openrlhf.report.curves import VALIDATION, series, validation_sets
from real_openrlhf.report.differences.welch import student_quantile
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import compare
from real_openrlhf.report.statistics import estimate, paired
from real_openrlhf.report.table_forms import Cell, Table, words

MARGIN = 0.05  # of held-out pass@1; one evaluation has a standard error of about 0.03


def equal_time(runs: Sequence[Run]) -> Table:
    """What each method reached in equal steps and in equal time.

    A mixed prompt has right and wrong answers. The time is that of the steps, without set-up and validation. Equal
    time is what the fastest method took for all its steps in its slowest run; of the others the last validation counts
    that was reached by then.
    """
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
        rows.append([words(setting.label), *cells, words(setting.seeds)])
    columns = ["Method", "Seconds a step", "Mixed prompts", "Equal steps", "Steps in equal time", "Equal time", "Runs"]
    notes = [f"Held-out pass@1. Equal time: {equal:.0f} s of steps. ± is one standard error over runs."]
    return Table("equal_time", "In equal steps and in equal time", columns, [("", rows)], notes)


def equivalence(runs: Sequence[Run]) -> Table:
    """Which methods end level with REAL.

    The margin and the test were chosen before the runs: two one-sided t-tests at 5 % each on the differences of seeds.
    So a method is level if the interval of 90 % around the mean difference lies within the margin.
    """
    (comparison,) = compare(runs)
    sets = validation_sets(runs)
    ends = [
        {run.seed: float(series(run, VALIDATION, sets).values[-1]) for run in one.counted}
        for one in comparison.settings
    ]
    first, *others = comparison.settings
    rows = []
    for setting, end in zip(others, ends[1:], strict=True):
        if gap := paired(end, ends[0]):
            reach = student_quantile(0.95, gap.n - 1) * gap.se
            low, high = gap.mean - reach, gap.mean + reach
            interval = words(f"{low:.3f} to {high:.3f}")
            rows.append([words(setting.label), Cell(number=gap), interval, words(verdict(low, high))])
    columns = ["Method", f"Less {first.label}", "90 % interval", f"Margin {MARGIN:g}"]
    notes = ["Held-out pass@1 after the last step, by pairs of seeds. ± is one standard error over pairs."]
    return Table("equivalence", f"Level with {first.label}?", columns, [("", rows)], notes)


def verdict(low: float, high: float) -> str:
    if -MARGIN < low and high < MARGIN:
        return "level"
    return "lower" if high < 0 else "higher" if low > 0 else "cannot be told apart, nor called level"
