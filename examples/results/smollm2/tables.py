"""Tables of the campaigns with a pretrained model; a page names the function, and refresh.py calls it."""

from collections.abc import Sequence

import numpy as np

from real_openrlhf.report.curves import VALIDATION, over_training, series, validation_sets
from real_openrlhf.report.differences.welch import student_quantile
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import compare
from real_openrlhf.report.statistics import Estimate, estimate, paired
from real_openrlhf.report.table_forms import Table

REACHED, WINDOW = 0.5, 5
COLUMNS = {  # beside what validation says: a title, the key that is logged, what is made of a run's values
    "Seconds a step": ("timing/step_total", np.mean),
    "Trained": ("update/trained_share", np.mean),
    "Entropy, last step": ("rollout/entropy", lambda values: values[-1]),
    "Spread of weights, largest": ("real/weight_cv", np.max),
    "Clipped updates": ("update/clipped_share", np.mean),
}
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
        setting.label: [
            np.cumsum(run.logged["train"]["timing/step_total"].dropna().to_numpy()) for run in setting.counted
        ]
        for setting in comparison.settings
    }
    equal = min(max(seconds[-1] for seconds in of_runs) for of_runs in passed.values())
    for setting in comparison.settings:
        a_step, mixed, ends, steps, by_then = [], [], [], [], []
        for run, seconds in zip(setting.counted, passed[setting.label], strict=True):
            curve = series(run, VALIDATION, sets)
            a_step.append(seconds[-1] / len(seconds))
            all_right, all_wrong = (run.logged["train"][f"rollout/solve_{which}"] for which in ("all", "none"))
            mixed.append(float((1 - all_right - all_wrong).mean()))
            ends.append(curve.iloc[-1])
            reached = curve.loc[: max(np.searchsorted(seconds, equal, side="right"), curve.index[0])]
            steps.append(float(reached.index[-1]))
            by_then.append(reached.iloc[-1])
        columns = "Seconds a step", "Mixed prompts", "Equal steps", "Steps in equal time", "Equal time"
        cells = map(estimate, (a_step, mixed, ends, steps, by_then))
        rows.append({"Method": setting.label, **dict(zip(columns, cells, strict=True)), "Runs": setting.seeds})
    notes = [f"Held-out pass@1. Equal time: {equal:.0f} s of steps. ± is one standard error over runs."]
    return Table("equal_time", "In equal steps and in equal time", rows, notes)


def learning(runs: Sequence[Run]) -> Table:
    """What each method learned, and what it took.

    A threshold is reached at the first step at which the mean training pass rate of the last five steps is as high.
    """
    (comparison,) = compare(runs)
    sets, rows = validation_sets(runs), []
    for setting in comparison.settings:
        curves = [series(run, VALIDATION, sets) for run in setting.counted]
        first, last = ([curve.iloc[place] for curve in curves] for place in (0, -1))
        rises = [after - before for before, after in zip(first, last, strict=True)]
        means = [over_training(curve) for curve in curves]
        cells = map(estimate, (first, last, rises, means))
        rows.append(
            {
                "Method": setting.label,
                **dict(zip(("Before", "After", "Rise", "Mean over training"), cells, strict=True)),
                f"Steps to {REACHED:g}": reached(setting.counted),
                **{title: over_runs(setting.counted, *column) for title, column in COLUMNS.items()},
                "Runs": setting.seeds,
            }
        )
    notes = [
        "Before, After: held-out pass@1 at the first and the last evaluation. ± is one standard error over runs.",
        f"Steps to {REACHED:g}: until the mean training pass rate of {WINDOW} steps is there; median over runs.",
    ]
    return Table("learning", "A pretrained model on reasoning-gym", rows, notes)


def over_runs(runs: Sequence[Run], key: str, of_run) -> Estimate | None:
    return estimate(of_run(run.logged["train"][key].dropna().to_numpy()) for run in runs if key in run.logged["train"])


def reached(runs: Sequence[Run]) -> str:
    steps = []
    for run in runs:
        rates = run.logged["train"]["rollout/pass_rate"].dropna()
        means = np.convolve(rates, np.ones(WINDOW) / WINDOW, "valid")
        there = np.flatnonzero(means >= REACHED)
        steps.append(there[0] + WINDOW if len(there) else np.inf)
    middle = float(np.median(steps))
    return f"{middle:g}" if np.isfinite(middle) else "not reached"


def equivalence(runs: Sequence[Run]) -> Table:
    """Which methods end level with REAL.

    The margin and the test were chosen before the runs: two one-sided t-tests at 5 % each on the differences of seeds.
    So a method is level if the interval of 90 % around the mean difference lies within the margin.
    """
    (comparison,) = compare(runs)
    sets = validation_sets(runs)
    ends = [
        {run.seed: float(series(run, VALIDATION, sets).iloc[-1]) for run in one.counted} for one in comparison.settings
    ]
    first, *others = comparison.settings
    rows = []
    for setting, end in zip(others, ends[1:], strict=True):
        if gap := paired(end, ends[0]):
            reach = student_quantile(0.95, gap.n - 1) * gap.se
            low, high = gap.mean - reach, gap.mean + reach
            less = {f"Less {first.label}": gap, "90 % interval": f"{low:.3f} to {high:.3f}"}
            rows.append({"Method": setting.label, **less, f"Margin {MARGIN:g}": verdict(low, high)})
    notes = ["Held-out pass@1 after the last step, by pairs of seeds. ± is one standard error over pairs."]
    return Table("equivalence", f"Level with {first.label}?", rows, notes)


def verdict(low: float, high: float) -> str:
    if -MARGIN < low and high < MARGIN:
        return "level"
    return "lower" if high < 0 else "higher" if low > 0 else "cannot be told apart, nor called level"
