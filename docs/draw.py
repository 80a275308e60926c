"""Draws the pictures of the pages into docs/images, but those of measured runs (examples/results/refresh.py):

python docs/draw.py              # all below that need neither a run nor a report
python docs/draw.py RUN_DIR      # first_run.png, of a run that train_real_cpu.sh made
python docs/draw.py PAGE.png     # report.png, of a browser's screenshot of a report
"""

import json
import math
import random
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.patches import FancyBboxPatch, Patch, Rectangle
from PIL import Image

from real_openrlhf.algorithm.groups import NEGATIVE, POSITIVE, RolloutBatch
from real_openrlhf.algorithm.objective import score_weights
from real_openrlhf.algorithm.schedule import Packing
from real_openrlhf.algorithm.settings import ObjectiveSettings
from real_openrlhf.algorithm.token_ratios import token_gradients

IMAGES = Path(__file__).parent / "images"

# The architecture: the size of a box
WIDTH, HEIGHT = 2.5, 1.05
# lane -> its bottom, its height
LANES = {"rollout actors": (4.35, 1.65), "controller": (2.55, 1.65), "every training rank": (0.0, 2.4)}
# name -> (left, bottom), title, what happens, module
BOXES = {
    "sample": ((0.2, 4.6), "vLLM", "8 responses per prompt", "OpenRLHF"),
    "grade": ((3.2, 4.6), "Verifier", "a reward for each", "rewards/"),
    "label": ((3.2, 2.8), "Labels", "correct, incorrect, ungraded", "hooks/controller/labels.py"),
    "plan": ((6.2, 2.8), "Plan", "updates, waves, ranks", "algorithm/step_plan.py"),
    "log": ((9.2, 2.8), "Log", "metrics.jsonl", "hooks/controller/run_log.py"),
    "forward": ((0.2, 0.6), "1  Forward", "a score for each response", "algorithm/objective.py"),
    "exchange": ((3.2, 0.6), "2  Exchange", "one number per response", "algorithm/update.py"),
    "weigh": ((6.2, 0.6), "3  Weigh", "autograd on the table", "algorithm/objective.py"),
    "backward": ((9.2, 0.6), "4  Backward", "of sum w s: the gradient", "hooks/policy_trainer.py"),
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
    planned = Packing(lengths, RANKS, max_tokens=BUDGET).waves(step, 1)

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
    left.plot(steps, [line["rollout/pass_rate"] for line in train], color=COLORS[0], label="pass rate")
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


BLUE, ORANGE, GREY, INK = "#0072b2", "#d55e00", "#8a8f98", "#1b1f24"

# One group: the scores of its correct and its incorrect responses (docs/change/method.md has the same)
TAU = 0.5
CORRECT, INCORRECT = (0.10, 0.05, -0.20), (-0.10, 0.0, 0.05, 0.10, 0.20)


def weights(scores: tuple[float, ...], sign: int) -> list[float]:
    """|W| by Proposition 5.1: sign is 1 for correct responses and -1 for incorrect ones."""
    total = 1 + sum(math.exp(-sign * score / TAU) for score in scores)
    return [math.exp(-sign * score / TAU) / total / TAU for score in scores]


def group() -> None:
    figure, axes = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
    rows = [*zip(["correct"] * 3, CORRECT, weights(CORRECT, 1), strict=True)]
    rows += [*zip(["incorrect"] * 5, INCORRECT, weights(INCORRECT, -1), strict=True)]
    for row, (label, score, weight) in enumerate(rows):
        right = label == "correct"
        colour, length = (BLUE, 0.28 * weight) if right else (ORANGE, -0.28 * weight)
        head = {"arrowstyle": "-|>", "color": colour, "linewidth": 2.2, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (score + length, row), (score, row), arrowprops=head)
        axes.plot(score, row, "o", color=colour, markersize=8)
        end = score + length + (0.01 if right else -0.01)
        axes.text(end, row, f"{weight:.3f}", va="center", ha="left" if right else "right", color=colour, weight="bold")
        axes.text(-0.49, row, label, va="center", color=colour)
        axes.text(-0.315, row, f"{score:+.2f}".replace("-", "−"), va="center", ha="right")
    axes.axvline(0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(
        xlim=(-0.5, 0.36),
        ylim=(7.6, -0.6),
        xlabel=r"score $\bar s$: mean of $\log\pi_\theta-\log\pi_{\rm old}$ over the tokens",
    )
    axes.set_title(
        "Dot: the response's score.  Arrow: its weight |W|, and where the gradient pushes it", loc="left", fontsize=10
    )
    axes.set_yticks([])
    axes.set_xticks([-0.2, -0.1, 0, 0.1, 0.2], ["−0.2", "−0.1", "0", "0.1", "0.2"])
    axes.spines[["top", "right", "left"]].set_visible(False)
    save(figure, "group.png")


def split_group() -> None:
    """The group of eight on two ranks, and what each computes."""
    figure, axes = plt.subplots(figsize=(9.5, 3.5), layout="constrained")
    scores = [*((s, BLUE) for s in CORRECT), *((s, ORANGE) for s in INCORRECT)]
    order = [0, 1, 3, 4, 2, 5, 6, 7]  # two correct responses on rank 0, one on rank 1
    for rank in (0, 1):
        top = 2.1 * (1 - rank)
        box(axes, (0, top), 3.3, 1.7, "#f1f1f1", f"rank {rank}: forward")
        for number, index in enumerate(order[4 * rank : 4 * rank + 4]):
            score, colour = scores[index]
            height = top + 1.05 - 0.28 * number
            axes.add_patch(Rectangle((0.15, height), 1.5 + 0.3 * ((index * 5) % 4), 0.18, color=colour, alpha=0.55))
            axes.text(3.2, height + 0.09, f"{score:+.2f}".replace("-", "−"), ha="right", va="center", color=colour)
        box(axes, (7.3, top), 3.4, 1.7, "#f1f1f1", f"rank {rank}: backward")
        axes.text(7.45, top + 0.98, r"of $\sum_k w_k\,\bar s^k$" + "\nover its own four", va="center", fontsize=9)
        text = f"correct: 1 / (1 + 3) at score 0,\nnot 1 / (1 + {2 - rank})"
        axes.text(7.45, top + 0.35, text, va="center", fontsize=9, color=BLUE)
        arrow(axes, (3.35, top + 0.8), (4.2, 1.95 + 0.25 * (1 - 2 * rank)))
        arrow(axes, (6.35, 1.95 + 0.25 * (1 - 2 * rank)), (7.25, top + 0.8))
    box(axes, (4.25, 0.65), 2.05, 2.6, "white", "all-reduce")
    for row, index in enumerate(order):
        score, colour = scores[index]
        axes.text(5.95, 2.72 - 0.245 * row, f"{score:+.2f}".replace("-", "−"), ha="right", va="center", color=colour)
        axes.text(4.5, 2.72 - 0.245 * row, f"response {row + 1}", va="center", fontsize=8, color=INK)
    axes.text(5.27, 0.42, "one number per response", ha="center", fontsize=9, style="italic")
    axes.set(xlim=(-0.1, 10.8), ylim=(-0.1, 4.0))
    axes.axis("off")
    save(figure, "split_group.png")


# One step: its lanes, and from where to where each time of the log goes
ACTORS = ("vLLM", "verifier", "controller", "training ranks")
TIMES = {
    "timing/generation": (0, 4.3),
    "timing/make_experience": (4.4, 6.9),
    "timing/ppo_train": (7.0, 10.8),
    "timing/broadcast": (10.9, 12.3),
}


def step() -> None:
    """What runs when, and which number of the log has its time."""
    figure, axes = plt.subplots(figsize=(10, 2.9), layout="constrained")
    bars = [
        ("vLLM", 0, 3.4, "sample 8 responses per prompt", BLUE),
        ("verifier", 0.7, 3.6, "grade each as it ends", BLUE),
        ("controller", 4.4, 1.05, "label,\nplan", GREY),
        ("training ranks", 5.5, 1.4, "log-probs:\nold, reference*", GREY),
        *(("training ranks", 7.0 + 0.95 * n, 0.9, f"update {n + 1}", ORANGE) for n in range(4)),
        ("training ranks", 10.9, 1.4, "send weights", GREY),
        ("vLLM", 10.9, 1.4, "load weights", GREY),
        ("vLLM", 12.4, 1.6, "evaluate**", BLUE),
        ("verifier", 12.6, 1.6, "grade", BLUE),
    ]
    for lane, start, width, text, colour in bars:
        bottom = len(ACTORS) - 1 - ACTORS.index(lane)
        axes.add_patch(Rectangle((start, bottom + 0.14), width, 0.72, facecolor=colour, alpha=0.28, edgecolor=colour))
        axes.text(start + width / 2, bottom + 0.5, text, ha="center", va="center", fontsize=8.5)
    for name, (start, end) in TIMES.items():
        line = {"arrowstyle": "|-|", "linewidth": 0.8, "mutation_scale": 3}
        axes.annotate("", (end, -0.16), (start, -0.16), arrowprops=line)
        axes.text((start + end) / 2, -0.3, name, ha="center", va="top", fontsize=8, family="monospace")
    axes.set_yticks([3.5, 2.5, 1.5, 0.5], ACTORS)
    axes.set_xticks([])
    axes.set(xlim=(-0.1, 14.4), ylim=(-1.0, 4))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.text(14.2, -0.95, "not to scale   * if the method needs it   ** every --eval.steps", ha="right", fontsize=8)
    save(figure, "step.png")


# The decision tree: question, its answers; a text without answers is a method
TREE = (
    ("Can the verifier say correct or incorrect?", "no: real values", "listwise, or your own loss"),
    (
        "Are rollouts stale (asynchronous)?",
        "yes",
        "REAL with score=log_ratio_rollout and τ = 0.1,\nVESPO, or corrected GRPO",
    ),
    ("More than one update per rollout batch?", "no", "any: no difference found"),
    ("Few prompts solved at the start?", "yes", "GRPO or DAPO"),
    (
        "Collapses at your learning rate?",
        "yes",
        "a lower rate, then fewer updates;\nelse ratio_none, balanced or GSPO",
    ),
)
LAST = "the method that you know, its rate tuned"


def tree() -> None:
    figure, axes = plt.subplots(figsize=(9.5, 4.9), layout="constrained")
    for number, (question, answer, method) in enumerate(TREE):
        bottom = 1.15 * (len(TREE) - 1 - number)
        box(axes, (0, bottom), 4.3, 0.75, "white")
        axes.text(2.15, bottom + 0.375, question, ha="center", va="center", fontsize=9.5)
        box(axes, (6.3, bottom), 4.6, 0.75, "#dcebf5")
        axes.text(8.6, bottom + 0.375, method, ha="center", va="center", fontsize=9.5)
        arrow(axes, (4.35, bottom + 0.375), (6.25, bottom + 0.375))
        axes.text(5.28, bottom + 0.43, answer, ha="center", va="bottom", fontsize=8.5, color="#565c66")
        arrow(axes, (2.15, bottom - 0.05), (2.15, bottom - 0.38))
        other = "yes" if answer.startswith("no") else "no"
        axes.text(2.25, bottom - 0.2, other, va="center", fontsize=8.5, color="#565c66")
    box(axes, (0, -1.15), 4.3, 0.75, "#dcebf5")
    axes.text(2.15, -0.775, LAST, ha="center", va="center", fontsize=9.5)
    axes.set(xlim=(-0.1, 11), ylim=(-1.25, 5.45))
    axes.axis("off")
    save(figure, "choosing.png")


def box(axes, corner: tuple[float, float], width: float, height: float, colour: str, title: str = "") -> None:
    shape = "round,pad=0,rounding_size=0.08"
    axes.add_patch(
        FancyBboxPatch(corner, width, height, boxstyle=shape, facecolor=colour, edgecolor="#565c66", linewidth=0.9)
    )
    axes.text(corner[0] + 0.15, corner[1] + height - 0.14, title, va="top", fontsize=9, weight="bold")


# The paper's Figure 1: tau 0.5, C = 4, clipping 0.2, advantage 1
CONTEXT, EPSILON = 4, 0.2
FIGURE_ONE = {"font.size": 9, "axes.titlesize": 10, "axes.grid": True, "grid.alpha": 0.2, "grid.linewidth": 0.6}
FIGURE_ONE |= {"axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.6, "lines.markersize": 4.5}
FIGURE_ONE |= {"legend.frameon": False, "text.parse_math": False}
FIGURE_ONE |= {f"{part}color": "#0a0b0c" for part in ("text.", "axes.label", "axes.edge", "xtick.", "ytick.", "grid.")}


def magnitudes(label: int, scores: torch.Tensor) -> dict[str, torch.Tensor]:
    """|W| of a response (REAL) and a token (GRPO) by its relative log-probability, as training computes it.

    The response's C - 1 companions of the same label stay at score 0.
    """
    size = 2 * CONTEXT  # a mixed group: the other class is there, and its scores do not matter
    table = torch.zeros(len(scores), size, dtype=torch.float64)
    table[:, 0] = scores
    labels = torch.tensor([label] * CONTEXT + [POSITIVE + NEGATIVE - label] * CONTEXT).repeat(len(scores))
    groups = torch.arange(len(scores)).repeat_interleave(size)
    weighed = score_weights(
        ObjectiveSettings("real", settings={"tau": TAU}), table.flatten(), RolloutBatch(labels, groups)
    )
    tokens, same = scores[:, None], torch.full((len(scores),), label)
    arguments = tokens, torch.zeros_like(tokens), torch.ones_like(tokens), same
    grpo = token_gradients("grpo", *arguments, clip=(EPSILON, EPSILON))
    return {"grpo": grpo[:, 0], "real": weighed.rollout_weights.view(-1, size)[:, 0].abs()}


def gradient_magnitude() -> None:
    scores = torch.linspace(-2, 2, 801, dtype=torch.float64)
    looks = {
        "grpo": ("GRPO: ε = 0.2, A = 1", "#D55E00", "--", "v"),
        "real": ("REAL: τ = 0.5, C = 4", "#0072B2", "-", "o"),
    }
    sides = {"(a) positive, r = 1": (POSITIVE, 1 + EPSILON), "(b) negative, r = 0": (NEGATIVE, 1 - EPSILON)}
    with matplotlib.rc_context(FIGURE_ONE):
        figure = plt.figure(figsize=(6.6, 3.1), layout="constrained")
        for place, (title, (label, clips_from)) in enumerate(sides.items(), 1):
            axes, curves = figure.add_subplot(1, 2, place, title=title), magnitudes(label, scores)
            for start, (name, (about, colour, line, marker)) in enumerate(looks.items()):
                style = {"label": about, "color": colour, "linestyle": line, "marker": marker}
                axes.plot(scores, curves[name], markevery=(40 + 50 * start, 100), **style)
            axes.axhline(1 / TAU, color=INK, linestyle=":", linewidth=1, label="REAL's bound 1/τ")
            axes.axvline(math.log(clips_from), color=INK, linewidth=0.6, label="where GRPO's clipping sets in")
            axes.set(ylim=(0, 4), xlabel="relative log-probability s", ylabel="|W|")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        save(figure, "gradient_magnitude.png", dpi=150)


def save(figure, name: str, dpi: int = 110) -> None:
    """A palette: a third of the bytes, and the eye sees no difference."""
    figure.savefig(IMAGES / name, dpi=dpi)
    plt.close(figure)
    Image.open(IMAGES / name).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


def report(screenshot: Path) -> None:
    """The top of a report, at two thirds of its size."""
    picture = Image.open(screenshot).convert("RGB")
    picture = picture.resize((2 * picture.width // 3, 2 * picture.height // 3), Image.Resampling.LANCZOS)
    picture = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(IMAGES / "report.png", optimize=True)


if __name__ == "__main__":
    if not sys.argv[1:]:
        for draw_picture in (architecture, waves, group, split_group, gradient_magnitude, step, tree):
            draw_picture()
    elif Path(sys.argv[1]).is_dir():
        first_run(Path(sys.argv[1]))
    else:
        report(Path(sys.argv[1]))
