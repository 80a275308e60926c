"""Differences between settings by seed: runs of one seed saw the same prompts and updates, so their pairs say more."""

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from real_openrlhf.report.curves import VALIDATION, series
from real_openrlhf.report.curves import validation_sets as sets_of
from real_openrlhf.report.maps import axes_of, grids
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import Estimate, estimate
from real_openrlhf.report.table_forms import Cell, Row, Table, words

FEWEST = 3  # seeds in common
LEVEL = 0.05  # chance of calling any difference of a table one where there is none


Ends = dict[Setting, dict[int, float]]  # the last validation by seed


def pairs(comparison: Comparison) -> Table | None:
    """Every setting against the first one, with what a difference must exceed; None where no seeds are shared."""
    sets = sets_of(comparison.runs)
    ends = {setting: ends_by_seed(setting, sets) for setting in comparison.settings}
    return _table("pairs", "Differences by seed", {"": ends})


def pairs_in_cells(comparison: Comparison, across: Sequence[str]) -> Table | None:
    """The same in each cell of a map that has enough seeds."""
    found = grids(comparison, across)
    columns, lines = axes_of(found, across)
    names = [flag.removeprefix("--") for flag in across]
    cells: dict[str, Ends] = {}
    for column in columns:
        for line in lines:
            there = {setting: grid[column, line].outcomes for setting, grid in found.items() if (column, line) in grid}
            cells[f"{names[0]} {column}, {names[1]} {line}"] = {
                setting: {one.run.seed: one.final for one in runs if one.run.seed is not None}
                for setting, runs in there.items()
            }
    return _table("cell-pairs", "Differences by seed in the cells of the map", cells)


def _table(name: str, title: str, blocks: Mapping[str, Ends]) -> Table | None:
    firsts = (setting for ends in blocks.values() for setting in ends if len(ends[setting]) >= FEWEST)
    first = next(firsts, None)
    if first is None:
        return None
    gaps = {block: _gaps(ends, first) for block, ends in blocks.items()}
    count = sum(map(len, gaps.values()))
    if not count:
        return None
    rows = [(block, [_row(setting, gap, count) for setting, gap in known.items()]) for block, known in gaps.items()]
    notes = [
        f"Validation pass@1 at the end less that of {first.label}, mean over shared seeds; ± is the standard error of "
        "the paired difference.",
        f"Called a difference beyond the bound: Student's t for {LEVEL:.0%}, divided by the {count} rows of the "
        "table, so that a table of methods that are alike names one by chance in one of twenty.",
    ]
    columns = ["Setting", f"Less {first.label}", "Bound", "It is", "Seeds"]
    return Table(name, title, columns, [(block, found) for block, found in rows if found], notes)


def _gaps(ends: Ends, first: Setting) -> dict[Setting, Estimate]:
    gaps = {setting: difference(ends[setting], ends.get(first, {})) for setting in ends if setting is not first}
    return {setting: gap for setting, gap in gaps.items() if gap is not None}


def _row(setting: Setting, gap: Estimate, count: int) -> Row:
    bound = student_quantile(1 - LEVEL / 2 / count, gap.n - 1) * gap.se
    called = "higher" if gap.mean > bound else "lower" if -gap.mean > bound else "cannot be told apart"
    return Row([words(setting.label), Cell(number=gap), words(f"{bound:.3f}"), words(called), words(gap.n)])


def ends_by_seed(setting: Setting, sets: Sequence[str]) -> dict[int, float]:
    """The last validation of each finished run."""
    curves = {run.seed: series(run, VALIDATION, sets) for run in setting.counted if run.seed is not None}
    return {seed: float(curve.values[-1]) for seed, curve in curves.items() if curve is not None and len(curve)}


def difference(one: dict[int, float], other: dict[int, float]) -> Estimate | None:
    shared = sorted(one.keys() & other.keys())
    return estimate([one[seed] - other[seed] for seed in shared]) if len(shared) >= FEWEST else None


@functools.cache
def student_quantile(share: float, freedom: int) -> float:
    """Below which a Student's t with this many degrees of freedom lies with probability `share`, above a half."""
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_below(middle, freedom) < share else (low, middle)
    return (low + high) / 2


def _student_below(t: float, freedom: int) -> float:
    """By the angle atan(t / sqrt(freedom)), over which the density is a power of a cosine."""
    grid = np.linspace(0, math.atan(t / math.sqrt(freedom)), 4001)
    density = np.cos(grid) ** (freedom - 1)
    area = float(((density[1:] + density[:-1]) / 2 * np.diff(grid)).sum())
    return 0.5 + area * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
