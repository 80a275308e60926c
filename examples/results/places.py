"""Two figures of docs/evidence/results.md, from the numbers of check.py: `refresh.py` draws them.

`headline.png`: REAL minus GRPO in four settings. `spread.png`: REAL minus fixed weights against z, a dot a setting.
"""

from pathlib import Path

import check
import matplotlib
import sentences
from drawing import INK, STYLE, save_png
from matplotlib.figure import Figure
from methods import METHODS

NEW, OLDER = METHODS["real"].look.colour, "#7F7F7F"
# Records without a tree: the code that ran cannot be had again
OLDER_CODE = ("archive", "stale", "tune-hard", "tune-sums", "rates")
HEADLINE = {  # place: what stands below its bar
    "4 updates": "4 updates a batch",
    "hard task": "hard task",
    "pretrained": "pretrained 135M",
    "16 updates": "16 updates a batch",
}


def headline(path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        axes = figure.add_subplot()
        labels = []
        for place, title in HEADLINE.items():
            gap, conclusion, _ = sentences.concluded(place, ("REAL", "GRPO"))
            half = check.t_quantile(0.975, gap.freedom) * gap.se
            colour = OLDER if conclusion == "inconclusive" else NEW
            axes.bar([title], [gap.mean], yerr=[half], color=colour, width=0.6, capsize=3, ecolor=INK)
            rates = " and ".join(dict.fromkeys(check.times(check.multiple(place, arm)) for arm in ("REAL", "GRPO")))
            seeds = len(check.arm(place, "REAL").runs)
            labels.append(f"{title}\nrate: {rates} x best\n{seeds} seeds")
        axes.set_xticks(range(len(labels)), labels)
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_ylabel("REAL minus GRPO, pass@1")
        axes.set_title("REAL leads GRPO only at three times the best learning rate (grey: inconclusive)")
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
