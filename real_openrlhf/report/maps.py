"""Where methods work and where they break: heat maps over two flags, their table, and differences in each cell."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from real_openrlhf.base.errors import UserError
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.curves import VALIDATION, collapsed, series, validation_sets
from real_openrlhf.report.differences.table import Values, table
from real_openrlhf.report.drawing import INK, Entry, Panel, Picture
from real_openrlhf.report.methods import Look
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import Estimate, estimate
from real_openrlhf.report.table_forms import BLOCK, SE_NOTE, Row, Table

MISSING = "not set"
# More columns of the table of cells, if runs logged the key: title -> (key, what is made of a run's values).
COLUMNS: dict[str, tuple[str, Callable[[pd.Series], float]]] = {
    "Clipped updates": ("update/clipped_share", pd.Series.mean),
    "Entropy, last step": ("entropy_loss", lambda values: values.iloc[-1]),
    "Largest ratio": ("update/ratio_max", pd.Series.max),
    "Score deviation, largest": ("real/score_std", pd.Series.max),
    "Spread of weights, largest": ("real/weight_cv", pd.Series.max),
}


@dataclass(frozen=True)
class MapCell:
    """The finished runs with one value of each flag, and the number of other runs."""

    runs: pd.DataFrame  # a row a run: `final` and `best` validation, whether it `collapsed`, and COLUMNS
    unfinished: int

    def mean(self, column: str) -> Estimate | None:
        return estimate(self.runs[column].dropna()) if column in self.runs else None

    @property
    def collapsed(self) -> str:
        """How many of the runs."""
        return f"{self.runs['collapsed'].sum()} of {len(self.runs)}"

    @property
    def words(self) -> str:
        """The mean, and how many of the runs collapsed if any did."""
        final = self.mean("final")
        marks = "" if self.collapsed.startswith("0 ") else f"\n✕ {self.collapsed}"
        return f"{final.mean:.2f}{marks}" if final else "failed"


@dataclass(frozen=True)
class Map:
    """The cells of every setting, by their values of the two flags."""

    cells: dict[tuple[Setting, str, str], MapCell]
    x: list[str]  # the values of the first flag, in order
    y: list[str]
    names: list[str]  # of the flags

    def of(self, setting: Setting) -> dict[tuple[str, str], MapCell]:
        return {(x, y): self.cells[setting, x, y] for x in self.x for y in self.y if (setting, x, y) in self.cells}


def lay_out(comparison: Comparison, across: Sequence[str]) -> Map:
    """`UserError` if a flag does not vary."""
    sets = validation_sets(comparison.runs)
    found: dict[tuple[Setting, str, str], list[dict | None]] = defaultdict(list)
    for setting in comparison.settings:
        for run in setting.runs:
            flags = [flags_of(run.meta).get(flag, MISSING) for flag in across]
            x, y = (f"{value:g}" if isinstance(value, float) else str(value) for value in flags)
            curve = series(run, VALIDATION, sets) if run.counted else None
            found[setting, x, y].append(None if curve is None else _outcome(run, curve))
    columns, lines = (sorted({place[side] for _, *place in found}, key=_order) for side in (0, 1))
    for flag, known in zip(across, (columns, lines), strict=True):
        if len(known) < 2:
            raise UserError(
                f"--map {flag.removeprefix('--')}: {flag} is {''.join(known) or 'missing'} in all runs. Name a flag "
                "that varies."
            )
    kept = ["run", "final", "best", "collapsed", *COLUMNS]
    cells = {
        place: MapCell(pd.DataFrame([one for one in runs if one], columns=kept), runs.count(None))
        for place, runs in found.items()
    }
    return Map(cells, columns, lines, [flag.removeprefix("--") for flag in across])


def _outcome(run: Run, curve: pd.Series) -> dict[str, Any]:
    logged = run.logged["train"]
    more = {title: pick(logged[key].dropna()) for title, (key, pick) in COLUMNS.items() if key in logged}
    return {"run": run, "final": curve.iloc[-1], "best": curve.max(), "collapsed": collapsed(curve), **more}


def _order(text: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def heat_maps(comparison: Comparison, across: Sequence[str]) -> Picture:
    """A panel a setting: the first flag from left to right, the second upwards."""
    found = lay_out(comparison, across)
    finals = {place: final for place, cell in found.cells.items() if (final := cell.mean("final"))}
    top = max((final.mean for final in finals.values()), default=0.0) or 1.0
    panels = [
        Panel(setting.label, functools.partial(_draw, found=found, setting=setting, top=top))
        for setting in comparison.settings
    ]
    names = found.names
    rows = [
        (setting.label, f"{names[1]} {y}", x, final.n, final.mean, final.se)
        for setting in comparison.settings
        for x, y in found.of(setting)
        if (final := finals.get((setting, x, y)))
    ]
    caption = (
        f"Validation pass@1 at the end of training, mean over runs; all panels have one scale, 0 to {top:.2f}, darker "
        f"is better. ✕ and a frame: runs that collapsed, which ended below half of their own best. "
        f"Left to right {names[0]}, upwards {names[1]}."
    )
    legend = [Entry("collapsed", Look(INK, "", "x")), Entry("empty: no run", None)]
    return Picture("map", "Where methods work and where they break", caption, panels, legend, 3, rows, names[0])


def _draw(axes: Axes, found: Map, setting: Setting, top: float) -> None:
    shades = colormaps["Blues"]
    size = 9 if len(found.x) < 5 else 7
    for (column, line), cell in found.of(setting).items():
        x, y = found.x.index(column), found.y.index(line)
        final = cell.mean("final")
        share = final.mean / top if final else 0.0
        # from a tint to a dark blue, so that black or white text stays readable
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shades(0.04 + 0.8 * share), edgecolor="white"))
        ink = "white" if share > 0.6 else "#0a0a0a"
        axes.text(x, y, cell.words, ha="center", va="center", fontsize=size, color=ink)
        if "✕" in cell.words:
            axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=ink, linewidth=1.2))
    axes.set_xticks(range(len(found.x)), found.x)
    axes.set_yticks(range(len(found.y)), found.y)
    axes.set_xlim(-0.5, len(found.x) - 0.5)
    axes.set_ylim(-0.5, len(found.y) - 0.5)
    axes.set_xlabel(found.names[0])
    axes.set_ylabel(found.names[1])
    axes.grid(visible=False)


def cells(comparison: Comparison, across: Sequence[str]) -> Table:
    """The numbers of the maps, and other metrics of the runs of each cell."""
    found = lay_out(comparison, across)
    logged = {key for run in comparison.runs for key in run.logged["train"]}
    rows: list[Row] = [
        {
            BLOCK: setting.label,
            **dict(zip(found.names, place, strict=True)),
            "Final pass@1": cell.mean("final"),
            "Best pass@1": cell.mean("best"),
            **{title: cell.mean(title) for title, (key, _) in COLUMNS.items() if key in logged},
            "Collapsed": cell.collapsed,
            "Runs": f"{len(cell.runs)}" + (f", {cell.unfinished} failed or unfinished" if cell.unfinished else ""),
        }
        for setting in comparison.settings
        for place, cell in found.of(setting).items()
    ]
    notes = [
        SE_NOTE,
        "Collapsed: ended below half of the run's own best validation. Means over runs: of a run's largest value "
        "where a column says so, of its steps' mean for clipped updates.",
    ]
    return Table("map", "The cells of the map", rows, notes)


def differences(comparison: Comparison, across: Sequence[str]) -> Table | None:
    """Every method less the first one, in each cell with enough runs, at the end of training."""
    found = lay_out(comparison, across)
    blocks: dict[str, Values] = {}
    for place in itertools.product(found.x, found.y):
        block = ", ".join(map(" ".join, zip(found.names, place, strict=True)))
        cells = {setting: cell for (setting, *there), cell in found.cells.items() if (*there,) == place}
        blocks[block] = {
            one: dict(zip(cell.runs["run"], cell.runs["final"], strict=True)) for one, cell in cells.items()
        }
    return table("cell-differences", "Differences in the cells of the map, at the end", blocks)
