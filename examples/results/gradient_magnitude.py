"""The paper's Figure 1, computed from the weights that training uses: docs/images/gradient_magnitude.png.

`refresh.py` draws it. It needs no runs. REAL's weights come by autograd on the score table (a group of four positives
and four negatives, one score moved), GRPO's from its clipped token ratio. s is a token's relative log-probability for
GRPO, and its mean over a rollout for REAL.
"""

from dataclasses import dataclass
from math import log
from pathlib import Path

import matplotlib
import numpy as np
import torch
from drawing import INK, STYLE, save_png, strokes
from matplotlib.figure import Figure
from methods import METHODS

from real_openrlhf.algorithm.groups import NEGATIVE, POSITIVE, RolloutBatch
from real_openrlhf.algorithm.metrics import token_gradients
from real_openrlhf.algorithm.objective import ObjectiveSettings, score_weights

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
    weighed = score_weights(ObjectiveSettings("real", own={"tau": TAU}), table.flatten(), RolloutBatch(labels, groups))
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


def save_picture(path: Path) -> None:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.6, 3.1), layout="constrained")
        sides = {"(a) positive, r = 1": (POSITIVE, 1 + EPSILON), "(b) negative, r = 0": (NEGATIVE, 1 - EPSILON)}
        for place, (title, (label, clips_from)) in enumerate(sides.items(), 1):
            axes, curves = figure.add_subplot(1, 2, place, title=title), figure_one(label)
            for start, (name, about) in enumerate(
                (("grpo", "GRPO: ε = 0.2, A = 1"), ("real", "REAL: τ = 0.5, C = 4"))
            ):
                style = strokes(METHODS[name].look)
                axes.plot(curves.scores, getattr(curves, name), markevery=(40 + 50 * start, 100), label=about, **style)
            axes.axhline(1 / TAU, color=INK, linestyle=":", linewidth=1, label="REAL's bound 1/τ")
            axes.axvline(log(clips_from), color=INK, linewidth=0.6, label="where GRPO's clipping sets in")
            axes.set_ylim(0, 4)
            axes.set_xlabel("relative log-probability s")
            axes.set_ylabel("|W|")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        save_png(figure, path)
