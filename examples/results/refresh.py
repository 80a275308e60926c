"""Fill the tables of the pages and draw four figures, from the numbers of sentences.py:

python examples/results/refresh.py
"""

from pathlib import Path
from typing import Any

import check
import matplotlib
import numpy as np
import sentences
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

IMAGES = check.ROOT / "docs" / "images"
INK = "#0a0b0c"  # everything that is not data
STYLE = {"font.size": 9, "axes.titlesize": 10, "axes.grid": True, "grid.alpha": 0.2, "grid.linewidth": 0.6}
STYLE |= {"axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.6, "lines.markersize": 4.5}
STYLE |= {f"{part}color": INK for part in ("text.", "axes.label", "axes.edge", "xtick.", "ytick.", "grid.")}
STYLE |= {"legend.frameon": False}
# Records without a tree: the code that ran cannot be had again
OLDER_CODE = ("archive", "stale", "tune-hard", "tune-sums", "rates")
NEW, OLDER, ROLLOUT = "#0072B2", "#7F7F7F", "#CC79A7"


def look_of(color: str, linestyle: Any, marker: str) -> dict[str, Any]:
    """Colours that colour-blind readers can distinguish; line and marker distinguish the methods without colour."""
    return dict(color=color, linestyle=linestyle, marker=marker)


REAL, GRPO, CISPO = look_of(NEW, "-", "o"), look_of("#D55E00", "--", "v"), look_of("#332288", (0, (2, 1)), "d")
# An arm of check.py -> its name in the legend, and how it is drawn
RATES = {
    "REAL": ("REAL", REAL),
    sentences.FIXED: ("fixed weights", look_of(OLDER, ":", "D")),
    sentences.BALANCED: ("balanced REAL", look_of("#882255", (0, (5, 1, 1, 1)), "p")),
    "GRPO": ("GRPO", GRPO),
    "GSPO": ("GSPO, clip 0.2/0.3", look_of("#009E73", (0, (6, 1.5, 1, 1.5, 1, 1.5)), "X")),
    "ratio none": ("surrogate without ratio", CISPO),
    sentences.NEITHER: ("the same without clip", look_of("#00736B", (0, (1, 2)), ".")),
}
AGES = {  # REAL: the colour is the policy that scores are against, dashes are tau
    "rollout policy, tau 0.1": ("REAL against the rollout policy, τ = 0.1", look_of(ROLLOUT, "--", "s")),
    "rollout policy": ("REAL against the rollout policy", look_of(ROLLOUT, "-", "o")),
    "tau 0.1": ("REAL, τ = 0.1", look_of(NEW, "--", "s")),
    "REAL": ("REAL", REAL),
    "GRPO corrected": ("GRPO, corrected by token", GRPO),
    "CISPO": ("CISPO", CISPO),
    "OAPL": ("OAPL", look_of("#8C564B", (0, (1, 1)), ">")),
    "VESPO": ("VESPO", look_of("#009E73", "-.", "X")),
    "ReNCE": ("ReNCE", look_of("#7F7F7F", ":", "D")),
}


def log_scale(axes: Axes, ticks: dict[float, str]) -> None:
    axes.set_xscale("log")
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.minorticks_off()


def rates() -> Figure:
    """Pass@1 against the learning rate, 16 updates."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot(title="16 updates per rollout batch: similar at 1e-4")
    for label, (name, look) in RATES.items():
        tried = sentences.tried("C", label)
        means = [np.mean(values) for values in tried.values()]
        errors = [check.standard_error(values) for values in tried.values()]
        width, faint = (2.6, 1.0) if label in ("REAL", "GRPO") else (1.0, 0.7)
        axes.errorbar([*tried], means, errors, elinewidth=1, linewidth=width, alpha=faint, label=name, **look)
    log_scale(axes, {5e-5: "5e-5", 1e-4: "1e-4", 1.5e-4: "1.5e-4", 2e-4: "2e-4", 3e-4: "3e-4"})
    axes.legend(loc="lower left")
    axes.set_xlabel("learning rate (mean and standard error of seeds 1 to 3)")
    axes.set_ylabel("held-out pass@1 over training")
    return figure


def spread() -> Figure:
    """REAL minus fixed weights against z, a dot a setting."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.add_subplot(title="Fixed weights fall behind where scores spread")
    for cell in sentences.cells():
        colour, inside = (OLDER, "none") if cell.real.runs[0].folder.split("/")[0] in OLDER_CODE else (NEW, NEW)
        place = [max(cell.real.z, 2e-3)], [cell.gain]
        axes.scatter(*place, s=16 + 8 * len(cell.real.runs), facecolors=inside, edgecolors=colour, alpha=0.75)
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.axvline(0.1, color=INK, linewidth=0.6, linestyle=":")
    log_scale(axes, {0.002: "0", 0.01: "0.01", 0.03: "0.03", 0.1: "0.1", 0.3: "0.3"})
    for label, inside, edge in (("today's code", NEW, NEW), ("older code", "none", OLDER)):
        axes.scatter([], [], s=50, facecolors=inside, edgecolors=edge, label=label)
    axes.legend(loc="upper left")
    axes.set_xlabel("z: standard deviation of REAL's scores / τ")
    axes.set_ylabel("REAL minus fixed weights, pass@1")
    return figure


def ages() -> Figure:
    """Pass@1 of asynchronous runs with four batches waiting. Queue sizes are not compared: evaluations may be of later
    weights, by other steps in each."""
    arms = {label: sentences.arm("H", label) for label in AGES}
    steps = set.intersection(*(arm.steps for arm in arms.values()))
    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    figure.suptitle("Four batches wait, each method at its best learning rate", fontsize=10)
    axes = figure.add_subplot()
    for row, (label, (name, look)) in enumerate(reversed(AGES.items())):
        values = arms[label].means(steps=steps)
        title = f"{name}, {arms[label].rate:.0e}"
        axes.errorbar([values.mean()], [row], xerr=[check.standard_error(values)], **look | {"linestyle": "none"})
        axes.annotate(title, (0, row), (-6, 0), ("axes fraction", "data"), "offset points", ha="right", va="center")
    axes.set_yticks([])
    axes.set_xlabel(f"held-out pass@1, mean of steps {', '.join(map(str, sorted(steps)))}")
    return figure


def smollm2() -> Figure:
    """Held-out pass@1 of every run of a pretrained model."""
    figure = Figure(figsize=(6.4, 2.8), layout="constrained")
    axes = figure.add_subplot(title="SmolLM2-135M, five seeds of each method")
    for label, look in (("REAL", REAL), ("GRPO", GRPO)):
        for index, run in enumerate(sentences.arm("its page", label).runs):
            axes.plot([*run.evals], [*run.evals.values()], label="_" * index + label, alpha=0.8, **look)
    axes.set_ylim(0, 1)
    axes.set_xticks([0, 10, 20])
    axes.legend(loc="upper left")
    axes.set_xlabel("step")
    axes.set_ylabel("held-out pass@1")
    return figure


def save(figure: Figure, path: Path) -> None:
    """With a palette: a third of the bytes, and the eye sees no difference."""
    figure.dpi = 150
    FigureCanvasAgg(figure).print_png(path)
    pixels = Image.open(path).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    pixels.save(path, optimize=True)


if __name__ == "__main__":
    for page in sentences.sentences():
        page.write_text(check.filled(page.read_text(), sentences.TABLES))
    with matplotlib.rc_context(STYLE):
        for draw in (rates, spread, ages, smollm2):
            save(draw(), IMAGES / f"{draw.__name__}.png")
