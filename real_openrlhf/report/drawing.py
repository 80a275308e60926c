"""Draw a picture as PNG and PDF, the strokes that panels share, and the look of every method in all figures.

The functions call matplotlib's canvases directly, because `Figure.savefig` draws every figure twice.
"""

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from PIL import Image

from real_openrlhf.recipes.algorithms import ALGORITHMS

PANEL = (3.3, 2.5)  # inches
INK = "#0a0b0c"  # everything that is not data
STYLE: dict[Any, Any] = {  # Any, because matplotlib types its 300 keys one by one
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.2,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "text.parse_math": False,  # names of runs are no formulas
    "pdf.fonttype": 42,
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
}
MARKERS = 7  # on each curve
COLOURS = 128  # of a PNG
HANDLE, LETTER = 0.6, 0.075  # inches of a legend's entry: its line, and a letter of its text


@dataclass(frozen=True)
class Look:
    colour: str
    line: str | tuple
    marker: str
    label: str = ""  # the name of a method


# Colours that colour-blind readers can distinguish (Okabe and Ito's palette, darkened where weak on white, and a few
# more); line style and marker distinguish the methods without colour.
LOOKS = {
    "real": Look("#0072B2", "-", "o"),
    "real_bce": Look("#56B4E9", "--", "s"),
    "real_no_anchor": Look("#CC79A7", "-.", "^"),
    "real_constant": Look("#7F7F7F", ":", "D"),
    "real_permuted": Look("#6A8A22", (0, (5, 2, 1, 2)), "2"),
    "real_shrunk": Look("#B05A7A", (0, (2, 2)), "1"),
    "grpo": Look("#D55E00", "--", "v"),
    "dapo": Look("#E69F00", "-.", "P"),
    "gspo": Look("#009E73", (0, (6, 1.5, 1, 1.5, 1, 1.5)), "X"),
    "trpa": Look("#A89600", (0, (3, 1)), "<"),
    "disco_logl": Look("#8C564B", (0, (1, 1)), ">"),
    "disco_lratio": Look("#7B3FA0", (0, (8, 2)), "*"),
    "real_balanced": Look("#882255", (0, (5, 1, 1, 1)), "p"),
    "cispo": Look("#332288", (0, (2, 1)), "d"),
    "reinforce": Look("#2F4F2F", (0, (4, 1, 1, 1, 1, 1)), "8"),
    "listwise": Look("#B8336A", (0, (7, 1)), "h"),
    "conspo": Look("#5C4033", (0, (3, 1, 1, 1)), "H"),
    "maxrl": Look("#00736B", (0, (1, 2)), "."),
}
UNKNOWN = Look("#444444", (0, (2, 2)), "h")
METHODS = {name: replace(LOOKS.get(name, UNKNOWN), label=one.label) for name, one in ALGORITHMS.items()}


def method(algo: str) -> Look:
    """The look of an algorithm; an unknown algorithm is dark grey, with its name as label."""
    return METHODS.get(algo) or replace(UNKNOWN, label=algo)


@dataclass(frozen=True)
class Entry:
    """A legend entry; without a look it is a text alone, such as `GRPO: no run`."""

    label: str
    look: Look | None


@dataclass(frozen=True)
class Panel:
    title: str
    draw: Callable[[Axes], None]


@dataclass(frozen=True)
class Picture:
    name: str
    title: str
    caption: str
    panels: list[Panel]
    legend: list[Entry]
    columns: int
    rows: list[tuple] = field(default_factory=list)  # the drawn numbers: curve, metric, x, runs, mean, SE
    axis: str = "step"
    panel: tuple[float, float] = PANEL

    def to_csv(self) -> str:
        columns = ["curve", "metric", self.axis, "runs", "mean", "se"]
        return pd.DataFrame(self.rows, columns=columns).to_csv(index=False, na_rep="nan", lineterminator="\n")


def save_as(picture: Picture, path: Path, with_pdf: bool = False) -> Path:
    """The whole figure as a PNG, with a palette: a third of the bytes, and the eye sees no difference."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        figure = _whole(picture)
        save_png(figure, path)
        if with_pdf:
            figure.set_layout_engine("none")  # the PNG has fixed the layout
            FigureCanvasPdf(figure).print_pdf(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    return path


def save_png(figure: Figure, path: Path) -> None:
    figure.dpi = 150
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    pixels.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def _whole(picture: Picture) -> Figure:
    columns = min(picture.columns, len(picture.panels))
    lines = -(-len(picture.panels) // columns)
    width = columns * picture.panel[0]
    longest = max((len(entry.label) for entry in picture.legend), default=0)
    fit = int(width / (HANDLE + LETTER * longest))
    legend_columns = max(1, min(len(picture.legend), 2 if columns < 3 else columns, fit))
    labels = [textwrap.fill(entry.label, int((width - HANDLE) / LETTER)) for entry in picture.legend]
    legend_lines = len(labels) + sum(label.count("\n") for label in labels)
    legend_height = 0.22 * -(-legend_lines // legend_columns) + 0.1
    height = lines * picture.panel[1] + legend_height
    above_legend = (0, legend_height / height, 1, 1 - legend_height / height)
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(rect=above_legend))
    for place, panel in enumerate(picture.panels, 1):
        axes = figure.add_subplot(lines, columns, place)
        axes.set_title(textwrap.fill(panel.title, 40))
        panel.draw(axes)
    looks = [entry.look or Look(INK, "none", "") for entry in picture.legend]
    handles = [Line2D([], [], **strokes(look)) for look in looks]
    figure.legend(handles, labels, loc="lower center", ncols=legend_columns)
    return figure


# The strokes


def strokes(look: Look) -> dict[str, Any]:  # Any, because matplotlib types line styles as literals
    return {"color": look.colour, "linestyle": look.line, "marker": look.marker}


def over_steps(axes: Axes) -> None:
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))


def _broken(curve: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """The points, with nan wherever steps are missing, so that no line crosses the gap."""
    jumps = np.diff(curve.index)
    places = np.flatnonzero(jumps > 1.5 * np.median(jumps)) + 1 if len(curve) > 2 else np.array([], dtype=int)
    x, y = (np.insert(np.asarray(column, dtype=float), places, np.nan) for column in (curve.index, curve))
    return x, y


def line(axes: Axes, curve: pd.Series, look: Look, place: int = 0) -> None:
    x, y = _broken(curve)
    every = max(1, len(x) // MARKERS)
    axes.plot(x, y, markevery=(place % every, every), **strokes(look))


def thin_line(axes: Axes, curve: pd.Series, look: Look, **style: Any) -> None:
    axes.plot(*_broken(curve), **{"color": look.colour, "linestyle": look.line, "linewidth": 0.6, **style})


def fill(axes: Axes, middle: pd.Series, spread: pd.Series, colour: str) -> None:
    x, low = _broken(middle - spread)
    axes.fill_between(x, low, _broken(middle + spread)[1], color=colour, alpha=0.18, linewidth=0)


def say(axes: Axes, words: str) -> None:
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", va="center")
    axes.set_xticks([])
    axes.set_yticks([])
