"""Two figures of docs/evidence/results.md, from the numbers of check.py: `refresh.py` draws them.

`rates.png`: pass@1 against the learning rate, 16 updates. `spread.png`: REAL minus fixed weights against z, a dot a
setting.
"""

from pathlib import Path

import check
import matplotlib
import numpy as np
from drawing import INK, STYLE, save_png, strokes
from matplotlib.figure import Figure
from methods import METHODS

NEW, OLDER = METHODS["real"].look.colour, "#7F7F7F"
# Records without a tree: the code that ran cannot be had again
OLDER_CODE = ("archive", "stale", "tune-hard", "tune-sums", "rates")
LABELS = {  # arms of 16 updates: the legend, and how they are drawn
    "REAL": ("REAL", METHODS["real"].look),
    check.FIXED: ("fixed weights", METHODS["real_fixed_weights"].look),
    check.BALANCED: ("balanced REAL", METHODS["real_balanced"].look),
    "GRPO": ("GRPO", METHODS["grpo"].look),
    "GSPO": ("GSPO, clip 0.2/0.3", METHODS["gspo"].look),
    "ratio none": ("GRPO without ratio and KL", METHODS["cispo"].look),
    check.NEITHER: ("the same, without clip", METHODS["maxrl"].look),
}


def rates(path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for label, (name, look) in LABELS.items():
            tried = check.tried("16 updates", label)
            means = [np.mean(values) for values in tried.values()]
            errors = [np.std(values, ddof=1) / np.sqrt(len(values)) for values in tried.values()]
            axes.errorbar([*tried], means, errors, elinewidth=1, label=name, **strokes(look))
        axes.set_xscale("log")
        axes.set_xticks([5e-5, 1e-4, 1.5e-4, 2e-4, 3e-4], ["5e-5", "1e-4", "1.5e-4", "2e-4", "3e-4"])
        axes.minorticks_off()
        axes.legend(loc="lower left")
        axes.set_xlabel("learning rate (mean and standard error of seeds 1 to 3)")
        axes.set_ylabel("held-out pass@1 over training")
        axes.set_title("16 updates per rollout batch: similar at 1e-4")
        save_png(figure, path)


def spread(path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for cell in check.cells():
            is_older = cell.folder.split("/")[0] in OLDER_CODE
            colour = OLDER if is_older else NEW
            inside = "none" if is_older else colour
            x = max(cell.z, 2e-3)
            axes.scatter([x], [cell.gain], s=16 + 8 * cell.seeds, facecolors=inside, edgecolors=colour, alpha=0.75)
        axes.axhline(0, color=INK, linewidth=0.6)
        axes.axvline(0.1, color=INK, linewidth=0.6, linestyle=":")
        axes.set_xscale("log")
        axes.set_xticks([0.002, 0.01, 0.03, 0.1, 0.3], ["0", "0.01", "0.03", "0.1", "0.3"])
        axes.minorticks_off()
        for label, inside, edge in (("today's code", NEW, NEW), ("older code", "none", OLDER)):
            axes.scatter([], [], s=50, facecolors=inside, edgecolors=edge, label=label)
        axes.legend(loc="upper left")
        axes.set_title("Fixed weights fall behind where scores spread")
        axes.set_xlabel("z: standard deviation of REAL's scores / τ")
        axes.set_ylabel("REAL minus fixed weights, pass@1")
        save_png(figure, path)
