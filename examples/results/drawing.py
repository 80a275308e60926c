"""The style of the figures of the records."""

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from methods import Look
from PIL import Image

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
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
}
COLOURS = 128  # of a PNG


def strokes(look: Look) -> dict[str, Any]:
    return {"color": look.colour, "linestyle": look.line, "marker": look.marker}


def save_png(figure: Figure, path: Path) -> None:
    figure.dpi = 150
    path.parent.mkdir(parents=True, exist_ok=True)
    FigureCanvasAgg(figure).print_png(path)
    shrink(path)


def shrink(path: Path) -> None:
    """A palette: a third of the bytes, and the eye sees no difference."""
    pixels = Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    pixels.save(path, optimize=True)
