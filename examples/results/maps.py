"""Where methods work and where they break: a heat map a method over two flags, and the table of its cells.

python examples/results/maps.py FLAG FLAG RUNS... OUT    # RUNS: campaigns, or folders of run folders
python examples/results/maps.py actor.adam.lr train.batch_size examples/results/map OUT
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import campaigns
import matplotlib
import pandas as pd
from drawing import INK, STYLE, save_png
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from methods import METHODS

from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import at_the_end, tasks, validation
from real_openrlhf.report.statistics import Estimate, estimate
from real_openrlhf.report.table_forms import BLOCK, SE_NOTE, Row, Table, to_csv, to_markdown

COLLAPSED = 0.5  # a run that ended below this share of its own best
# More columns of the table of cells, if runs logged the key: title -> (key, what is made of a run's values).
COLUMNS: dict[str, tuple[str, Callable[[pd.Series], float]]] = {
    "Clipped updates": ("update/clipped_share", pd.Series.mean),
    "Entropy, last step": ("entropy_loss", at_the_end),
    "Largest ratio": ("update/ratio_max", pd.Series.max),
    "Score deviation, largest": ("real/score_std", pd.Series.max),
    "Spread of weights, largest": ("real/weight_cv", pd.Series.max),
}


def collapsed(curve: pd.Series) -> bool:
    return bool(curve.iloc[-1] < COLLAPSED * curve.max())


@dataclass(frozen=True)
class Cell:
    """The runs of one method at one pair of values, and the validation of those that finished."""

    method: str
    place: tuple[str, str]
    runs: Sequence[Run]
    curves: Sequence[pd.Series]

    @property
    def final(self) -> Estimate | None:
        return estimate(map(at_the_end, self.curves))

    @property
    def collapses(self) -> int:
        return sum(map(collapsed, self.curves))


def cells(runs: Iterable[Run], flags: Sequence[str]) -> list[Cell]:
    """In the order of the methods. A method with other flags of its own has a map of its own."""
    places: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        x, y = (run.flags.get(flag, "not set") for flag in flags)
        others = {flag: value for flag, value in run.flags.items() if flag not in flags}
        places.setdefault((_text(x), _text(y)), []).append(replace(run, meta={**run.meta, "flags": others}))
    found = []
    for place, members in places.items():
        (task,) = tasks(members)
        for setting in task.settings:
            curves = [curve for run in setting.counted if (curve := validation(run, task.sets)) is not None]
            found.append((setting, Cell(setting.label, place, setting.runs, curves)))
    order = [*METHODS, *(setting.algo for setting, _ in found)]
    return [cell for _, cell in sorted(found, key=lambda pair: order.index(pair[0].algo))]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _order(text: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(text), text
    except ValueError:
        return True, 0.0, text


def heat_maps(cells: Sequence[Cell], flags: Sequence[str]) -> Figure:
    """A panel a method: the first flag from left to right, the second upwards; all panels have one scale."""
    methods = list(dict.fromkeys(cell.method for cell in cells))
    columns, lines = (sorted({cell.place[axis] for cell in cells}, key=_order) for axis in (0, 1))
    top = max((cell.final.mean for cell in cells if cell.final), default=0.0) or 1.0
    with matplotlib.rc_context(STYLE):
        wide = min(3, len(methods))
        high = -(-len(methods) // wide)
        figure = Figure(figsize=(3.3 * wide, 2.5 * high + 0.3), layout="constrained")
        for place, method in enumerate(methods, 1):
            axes = figure.add_subplot(high, wide, place, title=method)
            for cell in cells:
                if cell.method == method:
                    x, y = columns.index(cell.place[0]), lines.index(cell.place[1])
                    _draw(axes, x, y, cell, top, 9 if len(columns) < 5 else 7)
            axes.set_xticks(range(len(columns)), columns)
            axes.set_yticks(range(len(lines)), lines)
            axes.set_xlim(-0.5, len(columns) - 0.5)
            axes.set_ylim(-0.5, len(lines) - 0.5)
            axes.set_xlabel(flags[0].removeprefix("--"))
            axes.set_ylabel(flags[1].removeprefix("--"))
            axes.grid(visible=False)
        figure.supxlabel(f"pass@1 at the end, 0 to {top:.2f}; ✕ and a frame: runs that collapsed", fontsize=9)
    return figure


def _draw(axes: Axes, x: int, y: int, cell: Cell, top: float, size: int) -> None:
    share = cell.final.mean / top if cell.final else 0.0
    shade = colormaps["Blues"](0.04 + 0.8 * share)  # from a tint to a dark blue: black or white text stays readable
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=shade, edgecolor="white"))
    ink = "white" if share > 0.6 else INK
    words = f"{cell.final.mean:.2f}" if cell.final else "failed"
    if cell.collapses:
        words += f"\n✕ {cell.collapses} of {len(cell.curves)}"
        axes.add_patch(Rectangle((x - 0.46, y - 0.46), 0.92, 0.92, fill=False, edgecolor=ink, linewidth=1.2))
    axes.text(x, y, words, ha="center", va="center", fontsize=size, color=ink)


def table(cells: Sequence[Cell], flags: Sequence[str]) -> Table:
    rows: list[Row] = []
    methods = list(dict.fromkeys(cell.method for cell in cells))
    for cell in sorted(cells, key=lambda cell: (methods.index(cell.method), *map(_order, cell.place))):
        logs = [run.logged["train"] for run in cell.runs if run.counted]
        broken = len(cell.runs) - len(cell.curves)
        rows.append(
            {
                BLOCK: cell.method,
                **dict(zip((flag.removeprefix("--") for flag in flags), cell.place, strict=True)),
                "Final pass@1": cell.final,
                "Best pass@1": estimate(float(curve.max()) for curve in cell.curves),
                **{
                    title: estimate(float(pick(log[key].dropna())) for log in logs if key in log)
                    for title, (key, pick) in COLUMNS.items()
                },
                "Collapsed": f"{cell.collapses} of {len(cell.curves)}",
                "Runs": f"{len(cell.curves)}" + (f", {broken} failed or unfinished" if broken else ""),
            }
        )
    notes = [
        SE_NOTE,
        "Collapsed: ended below half of the run's own best validation. Means over runs: of a run's largest value "
        "where a column says so, of its steps' mean for clipped updates.",
    ]
    return Table("map", "The cells of the map", rows, notes)


def main(*words: str) -> int:
    if len(words) < 4:
        sys.exit(__doc__)
    flags = [f"--{word.removeprefix('--')}" for word in words[:2]]
    found, out = cells(campaigns.runs(map(Path, words[2:-1])), flags), Path(words[-1])
    save_png(heat_maps(found, flags), out / "map.png")
    for suffix, form in (("md", to_markdown), ("csv", to_csv)):
        (out / f"map.{suffix}").write_text(form(table(found, flags)))
    print(out / "map.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
