"""Where methods work and where they break: heat maps over two flags, their table, and differences in each cell."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from real_openrlhf.base.errors import UserError
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.curves import VALIDATION, series, validation_sets
from real_openrlhf.report.differences.table import table
from real_openrlhf.report.drawing import INK, Entry, Panel, Picture
from real_openrlhf.report.methods import Look
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import Estimate, estimate
from real_openrlhf.report.table_forms import Cell, Table, words
from real_openrlhf.report.tables import SE_NOTE

COLLAPSED = 0.5  # a run that ended below this share of its own best
MISSING = "not set"
# More columns of the table of cells, if runs logged the key: title -> (key, function that reduces a run's values).
COLUMNS: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "Clipped updates": ("update/clipped_share", lambda values: sum(values) / len(values)),
    "Entropy, last step": ("entropy_loss", lambda values: values[-1]),
    "Largest ratio": ("update/ratio_max", max),
    "Score deviation, largest": ("real/score_std", max),
    "Spread of weights, largest": ("real/weight_cv", max),
}


@dataclass(frozen=True)
class Outcome:
    """How one run went, by the validation that it logged."""

    run: Run
    final: float
    best: float


@dataclass(frozen=True)
class MapCell:
    """The finished runs with one value of each flag, and the number of other runs."""

    outcomes: tuple[Outcome, ...]
    unfinished: int

    @property
    def final(self) -> Estimate | None:
        return estimate(one.final for one in self.outcomes)

    @property
    def collapsed(self) -> int:
        return sum(one.final < COLLAPSED * one.best for one in self.outcomes)

    @property
    def words(self) -> str:
        """The mean, and how many of the runs collapsed if any did."""
        if not self.final:
            return "failed"
        marks = f"\n✕ {self.collapsed} of {len(self.outcomes)}" if self.collapsed else ""
        return f"{self.final.mean:.2f}{marks}"


Place = tuple[str, ...]  # a value of each flag of the map
Grid = dict[Place, MapCell]


def _grid(setting: Setting, across: Sequence[str], sets: Sequence[str]) -> Grid:
    cells: dict[Place, list[Outcome | None]] = defaultdict(list)
    for run in setting.runs:
        flags = flags_of(run.meta)
        values = (flags.get(flag, MISSING) for flag in across)
        cell = cells[tuple(f"{value:g}" if isinstance(value, float) else str(value) for value in values)]
        curve = series(run, VALIDATION, sets) if run.counted else None
        ends = (float(curve.values[-1]), float(curve.values.max())) if curve else ()
        cell.append(Outcome(run, *ends) if ends else None)
    return {
        place: MapCell(tuple(one for one in found if one is not None), found.count(None))
        for place, found in cells.items()
    }


def _in_order(values: set[str]) -> list[str]:
    """Numbers by size, then words."""

    def key(text: str) -> tuple[bool, float, str]:
        try:
            return False, float(text), text
        except ValueError:
            return True, 0.0, text

    return sorted(values, key=key)


def _laid_out(comparison: Comparison, across: Sequence[str]) -> tuple[dict[Setting, Grid], list[list[str]], list[str]]:
    """All grids, the values of each flag in them, the flags' names; `UserError` if a flag does not vary."""
    sets = validation_sets(comparison.runs)
    found = {setting: _grid(setting, across, sets) for setting in comparison.settings}
    places = {place for grid in found.values() for place in grid}
    every = [_in_order(set(values)) for values in zip(*places, strict=True)]
    for flag, values in zip(across, every, strict=True):
        if len(values) < 2:
            raise UserError(
                f"--map {flag.removeprefix('--')}: {flag} is {''.join(values) or 'missing'} in all runs. Name a flag "
                "that varies."
            )
    return found, every, [flag.removeprefix("--") for flag in across]


def heat_maps(comparison: Comparison, across: Sequence[str]) -> Picture:
    """A panel a setting: the first flag from left to right, the second upwards."""
    found, (columns, lines), names = _laid_out(comparison, across)
    every = [cell.final.mean for grid in found.values() for cell in grid.values() if cell.final]
    top = max(every, default=0.0) or 1.0
    panels = [
        Panel(setting.label, functools.partial(_draw, grid=grid, columns=columns, lines=lines, names=names, top=top))
        for setting, grid in found.items()
    ]
    rows = [
        (setting.label, f"{names[1]} {line}", column, len(cell.outcomes), cell.final.mean, cell.final.se)
        for setting, grid in found.items()
        for (column, line), cell in _by_place(grid, columns, lines)
        if cell.final
    ]
    caption = (
        f"Validation pass@1 at the end of training, mean over runs; all panels have one scale, 0 to {top:.2f}, darker "
        f"is better. ✕ and a frame: runs that collapsed, which ended below half of their own best. "
        f"Left to right {names[0]}, upwards {names[1]}."
    )
    legend = [Entry("collapsed", Look(INK, "", "x")), Entry("empty: no run", None)]
    return Picture("map", "Where methods work and where they break", caption, panels, legend, 3, rows, names[0])


def _by_place(grid: Grid, columns: list[str], lines: list[str]) -> list[tuple[Place, MapCell]]:
    return [((x, y), grid[x, y]) for x in columns for y in lines if (x, y) in grid]


def _draw(axes: Axes, grid: Grid, columns: list[str], lines: list[str], names: list[str], top: float) -> None:
    shades = colormaps["Blues"]
    size = 9 if len(columns) < 5 else 7
    for (column, line), cell in _by_place(grid, columns, lines):
        x, y = columns.index(column), lines.index(line)
        share = cell.final.mean / top if cell.final else 0.0
        # from a tint to a dark blue, so that black or white text stays readable
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shades(0.04 + 0.8 * share), edgecolor="white"))
        ink = "white" if share > 0.6 else "#0a0a0a"
        axes.text(x, y, cell.words, ha="center", va="center", fontsize=size, color=ink)
        if cell.collapsed:
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=ink, linewidth=1.2))
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(lines)), lines)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(lines) - 0.5)
    axes.set_xlabel(names[0])
    axes.set_ylabel(names[1])
    axes.grid(visible=False)


def cells(comparison: Comparison, across: Sequence[str]) -> Table:
    """The numbers of the maps, and other metrics of the runs of each cell."""
    found, (columns, lines), names = _laid_out(comparison, across)
    logged = {run_key for setting in comparison.settings for run in setting.runs for run_key in run.logged["train"]}
    extra = {title: pick for title, pick in COLUMNS.items() if pick[0] in logged}
    blocks = []
    for setting, grid in found.items():
        rows = []
        for (column, line), cell in _by_place(grid, columns, lines):
            runs = f"{len(cell.outcomes)}" + (f", {cell.unfinished} failed or unfinished" if cell.unfinished else "")
            numbers = [Cell(number=cell.final), Cell(number=estimate(one.best for one in cell.outcomes))]
            numbers += [Cell(number=_mean(cell, *pick)) for pick in extra.values()]
            share = f"{cell.collapsed} of {len(cell.outcomes)}"
            rows.append([words(column), words(line), *numbers, words(share), words(runs)])
        blocks.append((setting.label, rows))
    heads = [*names, "Final pass@1", "Best pass@1", *extra, "Collapsed", "Runs"]
    notes = [
        SE_NOTE,
        "Collapsed: ended below half of the run's own best validation. Means over runs: of a run's largest value "
        "where a column says so, of its steps' mean for clipped updates.",
    ]
    return Table("map", "The cells of the map", heads, blocks, notes)


def _mean(cell: MapCell, key: str, pick: Callable[[Sequence[float]], float]) -> Estimate | None:
    logged = (one.run.logged.get("train", {}).get(key) for one in cell.outcomes)
    return estimate(pick(series.values.tolist()) if series else None for series in logged)


def differences(comparison: Comparison, across: Sequence[str]) -> Table | None:
    """Every method less the first one, in each cell with enough runs, at the end of training."""
    found, values, names = _laid_out(comparison, across)
    blocks = {
        ", ".join(map(" ".join, zip(names, place, strict=True))): {
            setting: {one.run: one.final for one in grid[place].outcomes}
            for setting, grid in found.items()
            if place in grid
        }
        for place in itertools.product(*values)
    }
    return table("cell-differences", "Differences in the cells of the map, at the end", blocks)
