"""Held-out pass@1 against the size of the queue of an asynchronous run: `refresh.py` draws it, by check.py's numbers.

Each method has the learning rate that was best with a queue of four. A queue of eight has no evaluation at step 25, so
every point is over the evaluations that all queues have.
"""

from pathlib import Path

import check
import matplotlib
import numpy as np
from drawing import STYLE, save_png, strokes
from matplotlib.figure import Figure
from methods import METHODS, Look

SIZES = (0, 1, 2, 4, 8)
PAPER, ROLLOUT = METHODS["real"].look.colour, "#CC79A7"
# Arms of check.py, named in the legend. REAL: the colour is the policy that scores are against, dashes are tau
LINES = {
    "rollout policy, tau 0.1": ("REAL against the rollout policy, τ = 0.1", Look(ROLLOUT, "--", "s")),
    "rollout policy": ("REAL against the rollout policy", Look(ROLLOUT, "-", "o")),
    "tau 0.1": ("REAL, τ = 0.1", Look(PAPER, "--", "s")),
    "REAL": ("REAL", Look(PAPER, "-", "o")),
    "GRPO corrected": ("GRPO, corrected by token", METHODS["grpo"].look),
    "CISPO": ("CISPO", METHODS["cispo"].look),
    "OAPL": ("OAPL", Look("#8C564B", (0, (1, 1)), ">")),
    "VESPO": ("VESPO", Look("#009E73", "-.", "X")),
    "ReNCE": ("ReNCE", Look("#7F7F7F", ":", "D")),
}


def shared_steps() -> set[int]:
    """The evaluations that every arm of every queue has."""
    return set.intersection(*(check.arm(f"queue of {size}", label).steps for size in SIZES for label in LINES))


def save_picture(path: Path) -> None:
    steps = shared_steps()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 5.4), layout="constrained")
        axes = figure.add_subplot(title="Each at the learning rate that was best with a queue of four")
        for number, (label, (name, look)) in enumerate(LINES.items()):
            arms = [check.arm(f"queue of {size}", label) for size in SIZES]
            values = [arm.means(steps=steps) for arm in arms]
            x = [place + 0.012 * (number - len(LINES) // 2) for place in range(len(SIZES))]  # bars beside each other
            errors = [one.std(ddof=1) / np.sqrt(len(one)) for one in values]
            means = [one.mean() for one in values]
            axes.errorbar(x, means, errors, elinewidth=1, label=f"{name}, {arms[0].rate:.0e}", **strokes(look))
        axes.set_xticks(range(len(SIZES)), [*map(str, SIZES)])
        axes.set_xlabel("size of the queue (0: synchronous)")
        axes.set_ylabel(f"held-out pass@1, mean of steps {', '.join(map(str, sorted(steps)))}")
        figure.legend(loc="outside lower center", ncols=2)
        save_png(figure, path)
