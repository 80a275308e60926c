"""The paper's Figure 1, computed from the weights that training uses: docs/images/gradient_magnitude.png.

`refresh.py` draws it. It needs no runs. REAL's weights come by autograd on the score table (a group of four positives
and four negatives, one score moved), GRPO's from its clipped token ratio. s is a token's relative log-probability for
GRPO, and its mean over a rollout for REAL.
"""

from dataclasses import dataclass
from functools import partial
from math import log

import numpy as np
import torch
from matplotlib.axes import Axes

from real_openrlhf.algorithm.groups import NEGATIVE, POSITIVE, Table
from real_openrlhf.algorithm.metrics import token_gradients
from real_openrlhf.algorithm.objective import ObjectiveSettings, score_weights
from real_openrlhf.report.drawing import INK, METHODS, Entry, Look, Panel, Picture, strokes
from real_openrlhf.report.figures import BOUND

TAU, CONTEXT, EPSILON = 0.5, 4, 0.2  # tau 0.5, C = 4, clipping 0.2, advantage 1


@dataclass(frozen=True)
class Magnitudes:
    """|W| of one rollout (REAL) or one token (GRPO) against its relative log-probability."""

    scores: np.ndarray
    real: np.ndarray
    grpo: np.ndarray


def figure_one(label: int) -> Magnitudes:
    """The rollout under study moves; its C - 1 companions of the same label stay at score 0, which makes C = 4."""
    scores = torch.linspace(-2, 2, 801, dtype=torch.float64)
    size = 2 * CONTEXT  # a mixed group: the other class is there, and its scores do not matter
    table = torch.zeros(len(scores), size, dtype=torch.float64)
    table[:, 0] = scores
    labels = torch.tensor([label] * CONTEXT + [POSITIVE + NEGATIVE - label] * CONTEXT).repeat(len(scores))
    groups = torch.arange(len(scores)).repeat_interleave(size)
    weighed = score_weights(ObjectiveSettings("real", own={"tau": TAU}), table.flatten(), Table(labels, groups))
    tokens = scores[:, None]
    grpo = token_gradients(
        "grpo",
        tokens,
        torch.zeros_like(tokens),
        torch.ones_like(tokens),
        torch.full((len(scores),), label),
        clip=(EPSILON, EPSILON),
    )
    real = weighed.rollout_weights.view(-1, size)[:, 0].abs()
    return Magnitudes(scores.numpy(), real.numpy(), grpo[:, 0].numpy())


def picture() -> Picture:
    sides = {"positive": figure_one(POSITIVE), "negative": figure_one(NEGATIVE)}
    ways = ("grpo", "real")

    def draw(axes: Axes, side: str) -> None:
        curves = sides[side]
        for place, name in enumerate(ways):
            look, every = METHODS[name], (40 + 50 * place, 100)
            axes.plot(curves.scores, getattr(curves, name), markevery=every, **strokes(look))
        axes.axhline(1 / TAU, color=BOUND.colour, linestyle=BOUND.line, linewidth=1)
        clips_from = 1 + EPSILON if side == "positive" else 1 - EPSILON
        axes.axvline(log(clips_from), color=INK, linewidth=0.6)
        axes.set_ylim(0, 4)
        axes.set_xlabel("relative log-probability s")
        axes.set_ylabel("|W|")

    panels = [
        Panel("(a) positive, r = 1", partial(draw, side="positive")),
        Panel("(b) negative, r = 0", partial(draw, side="negative")),
    ]
    legend = [
        Entry("GRPO: ε = 0.2, A = 1", METHODS["grpo"]),
        Entry("REAL: τ = 0.5, C = 4", METHODS["real"]),
        Entry("REAL's bound 1/τ", BOUND),
        Entry("where GRPO's clipping sets in", Look(INK, "-", "")),
    ]
    return Picture("gradient", "Gradient magnitude of GRPO and REAL", "", panels, legend, columns=2)
