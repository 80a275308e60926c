"""Draws docs/images/waves.png: an optimizer step cut into waves by the planner itself. `python docs/draw_waves.py`"""

import random
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

from real_openrlhf.algorithm.packing import Limit
from real_openrlhf.algorithm.schedule import Layout

RANKS, GROUPS, SIZE, BUDGET = 4, 6, 4, 1000
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
HATCHES = ("", "//", "..", "xx", "\\\\", "++")


def main() -> None:
    draw = random.Random(3)
    lengths = [min(BUDGET, int(draw.lognormvariate(6.0, 0.5))) for _ in range(GROUPS * SIZE)]
    step = [list(range(SIZE * group, SIZE * (group + 1))) for group in range(GROUPS)]
    waves = Layout(lengths, RANKS, Limit(max_tokens=BUDGET)).waves(step, 1)

    figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
    start = 0.0
    for number, wave in enumerate(waves):
        for place in range(wave.depth):
            for rank, held in enumerate(wave.ranks):
                left = start
                for position in held[place]:
                    group = position // SIZE
                    box = (left, RANKS - 1 - rank + 0.1), lengths[position], 0.8
                    axes.add_patch(Rectangle(*box, facecolor=COLORS[group], hatch=HATCHES[group], edgecolor="white"))
                    left += lengths[position]
                box = (start, RANKS - 1 - rank + 0.1), BUDGET, 0.8
                axes.add_patch(Rectangle(*box, facecolor="none", edgecolor="#444444", linewidth=0.8))
            start += BUDGET
        axes.text(start - BUDGET * wave.depth / 2, RANKS + 0.12, f"wave {number + 1}", ha="center", fontsize=9)
        axes.axvline(start + 60, color="#444444", linewidth=1.2, linestyle="--")
        axes.text(start + 60, -0.12, "exchange", ha="center", va="top", fontsize=7, color="#444444")
        start += 120
    axes.set_xlim(-20, start)
    axes.set_ylim(-0.5, RANKS + 0.5)
    axes.set_yticks([RANKS - 0.5 - rank for rank in range(RANKS)], [f"rank {rank}" for rank in range(RANKS)])
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    patches = [
        Patch(facecolor=c, hatch=h, edgecolor="white", label=f"prompt {i + 1}")
        for i, (c, h) in enumerate(zip(COLORS, HATCHES, strict=True))
    ]
    figure.legend(handles=patches, ncols=GROUPS, loc="outside lower center", frameon=False, fontsize=8)
    figure.savefig(Path(__file__).parent / "images" / "waves.png", dpi=110)


if __name__ == "__main__":
    main()
