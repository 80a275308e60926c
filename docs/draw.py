"""Draws docs/images/architecture.png and waves.png; or first_run.png, of a run that train_real_cpu.sh made:

python docs/draw.py [RUN_DIR]
"""

import json
import random
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle

from real_openrlhf.algorithm.schedule import Layout, Limit

IMAGES = Path(__file__).parent / "images"

# The architecture: the size of a box
WIDTH, HEIGHT = 2.5, 1.05
# lane -> its bottom, its height
LANES = {"rollout actors": (4.35, 1.65), "controller": (2.55, 1.65), "every training rank": (0.0, 2.4)}
# name -> (left, bottom), title, what happens, module
BOXES = {
    "sample": ((0.2, 4.6), "vLLM", "8 responses a prompt", "OpenRLHF"),
    "grade": ((3.2, 4.6), "Verifier", "a reward for each", "rewards/"),
    "label": ((3.2, 2.8), "Labels", "correct, incorrect, ungraded", "hooks/controller/labels.py"),
    "plan": ((6.2, 2.8), "Plan", "updates, waves, ranks", "algorithm/step_plan.py"),
    "log": ((9.2, 2.8), "Log", "metrics.jsonl", "hooks/controller/run_log.py"),
    "forward": ((0.2, 0.6), "1  Forward", "a score for each response", "algorithm/objective.py"),
    "exchange": ((3.2, 0.6), "2  Exchange", "one number a response", "algorithm/update.py"),
    "weigh": ((6.2, 0.6), "3  Weigh", "autograd on the table", "algorithm/objective.py"),
    "backward": ((9.2, 0.6), "4  Backward", "of sum w s: the gradient", "hooks/actor/policy_trainer.py"),
}

# The waves
RANKS, GROUPS, SIZE, BUDGET = 4, 6, 4, 1000
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
HATCHES = ("", "//", "..", "xx", "\\\\", "++")


def architecture() -> None:
    """The path of a response."""
    figure, axes = plt.subplots(figsize=(10, 5.2), layout="constrained")
    for lane, (bottom, height) in LANES.items():
        axes.add_patch(Rectangle((-0.1, bottom), 12.5, height, facecolor="#f1f1f1", edgecolor="none"))
        axes.text(
            12.3, bottom + height - 0.08, lane, ha="right", va="top", fontsize=9, style="italic", color="#333333"
        )
    for box in BOXES.values():
        draw(axes, *box)
    for start, end in (("sample", "grade"), ("label", "plan"), ("forward", "exchange"), ("exchange", "weigh")):
        across(axes, start, end)
    across(axes, "weigh", "backward")
    arrow(axes, (4.45, 4.6), (4.45, 3.85))
    bend(
        axes,
        [(7.45, 2.8), (7.45, 2.02), (1.45, 2.02), (1.45, 1.65)],
        "responses, each with its rank and micro-batch",
        (4.4, 2.04),
    )
    arrow(axes, (10.45, 1.65), (10.45, 2.8))
    bend(
        axes, [(9.95, 0.6), (9.95, 0.27), (0.7, 0.27), (0.7, 0.6)], "next wave, until the update is whole", (5.3, 0.29)
    )
    bend(
        axes,
        [(11.0, 0.6), (11.0, -0.3), (-0.35, -0.3), (-0.35, 5.12), (0.2, 5.12)],
        "after the last update of the step: new weights to vLLM",
        (5.3, -0.28),
    )
    axes.set_xlim(-0.5, 12.5)
    axes.set_ylim(-0.45, 6.1)
    axes.axis("off")
    figure.savefig(IMAGES / "architecture.png", dpi=110)


def draw(axes, corner: tuple[float, float], title: str, text: str, module: str) -> None:
    shape = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle=shape, facecolor="white", linewidth=1.1))
    middle, bottom = corner[0] + WIDTH / 2, corner[1]
    axes.text(middle, bottom + 0.83, title, ha="center", va="center", fontsize=11, weight="bold")
    axes.text(middle, bottom + 0.51, text, ha="center", va="center", fontsize=9)
    axes.text(
        middle, bottom + 0.2, module, ha="center", va="center", fontsize=7.5, family="monospace", color="#333333"
    )


def across(axes, start: str, end: str) -> None:
    (left, bottom), (right, _) = BOXES[start][0], BOXES[end][0]
    arrow(axes, (left + WIDTH, bottom + HEIGHT / 2), (right, bottom + HEIGHT / 2))


def arrow(axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0})


def bend(axes, points: list[tuple[float, float]], text: str, at: tuple[float, float]) -> None:
    """An arrow with corners, and what it carries."""
    axes.plot(*zip(*points[:-1], strict=True), color="black", linewidth=1.3, solid_capstyle="butt")
    arrow(axes, points[-2], points[-1])
    axes.text(*at, text, ha="center", va="bottom", fontsize=8.5, color="#333333")


def waves() -> None:
    """An optimizer step cut into waves by the planner itself."""
    draw = random.Random(3)
    lengths = [min(BUDGET, int(draw.lognormvariate(6.0, 0.5))) for _ in range(GROUPS * SIZE)]
    step = [list(range(SIZE * group, SIZE * (group + 1))) for group in range(GROUPS)]
    planned = Layout(lengths, RANKS, Limit(max_tokens=BUDGET)).waves(step, 1)

    figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
    start = 0.0
    for number, wave in enumerate(planned):
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
    figure.savefig(IMAGES / "waves.png", dpi=110)


def first_run(folder: Path) -> None:
    """The curves of the README's first command."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    train, held_out = ([line for line in lines if line["phase"] == phase] for phase in ("train", "eval"))
    steps = [line["step"] for line in train]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.6), layout="constrained")
    left.plot(steps, [line["rollout/pass_rate"] for line in train], color=COLORS[0], label="training, pass rate")
    right.plot(steps, [line["policy_loss"] for line in train], color=COLORS[0])
    points = [line["step"] for line in held_out], [line["eval_reverse_pass1"] for line in held_out]
    left.plot(*points, "o", color=COLORS[5], label="held-out pass@1")
    left.set(title="share of correct responses", xlabel="step", ylim=(0, 1))
    right.set(title="loss", xlabel="step", ylim=(0, None))
    left.legend(frameon=False, loc="lower right")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.2)
    figure.savefig(IMAGES / "first_run.png", dpi=110)


if __name__ == "__main__":
    if sys.argv[1:]:
        first_run(Path(sys.argv[1]))
    else:
        architecture()
        waves()
