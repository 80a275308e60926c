"""Which methods end level with REAL on the pretrained model: a table of docs/results.md.

The margin and the test were chosen before the runs: two one-sided t-tests at 5 % each on the differences of seeds.
So a method is level if the interval of 90 % around the mean difference lies within the margin.
"""

from collections.abc import Sequence
from pathlib import Path

from real_openrlhf.report.curves import VALIDATION, series, validation_sets
from real_openrlhf.report.maps import difference, student_quantile
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import compare
from real_openrlhf.report.table_forms import Cell, Row, Table, words

MARGIN = 0.05  # of held-out pass@1; one evaluation has a standard error of about 0.03


def table(runs: Sequence[Run], _: Path) -> Table:
    (comparison,) = compare(runs)
    sets = validation_sets(runs)
    ends = [
        {run.seed: float(series(run, VALIDATION, sets).values[-1]) for run in one.counted}
        for one in comparison.settings
    ]
    first, *others = comparison.settings
    rows = []
    for setting, end in zip(others, ends[1:], strict=True):
        if gap := difference(end, ends[0]):
            reach = student_quantile(0.95, gap.n - 1) * gap.se
            low, high = gap.mean - reach, gap.mean + reach
            rows.append(
                Row(
                    [
                        words(setting.label),
                        Cell(number=gap),
                        words(f"{low:.3f} to {high:.3f}"),
                        words(verdict(low, high)),
                    ]
                )
            )
    columns = ["Method", f"Less {first.label}", "90 % interval", f"Margin {MARGIN:g}"]
    notes = ["Held-out pass@1 after the last step, by pairs of seeds. ± is one standard error over pairs."]
    return Table("equivalence", f"Level with {first.label}?", columns, [("", rows)], notes)


def verdict(low: float, high: float) -> str:
    if -MARGIN < low and high < MARGIN:
        return "level"
    return "lower" if high < 0 else "higher" if low > 0 else "cannot be told apart, nor called level"
