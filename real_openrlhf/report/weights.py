"""The paper's Figure 1 and Proposition 5.1, computed from the weights that training uses."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from real_openrlhf.algorithm.groups import NEGATIVE, POSITIVE
from real_openrlhf.algorithm.metrics import token_gradients
from real_openrlhf.algorithm.objective import ObjectiveSettings, score_weights

TAU, CONTEXT, EPSILON = 0.5, 4, 0.2  # Figure 1: tau 0.5, C = 4, clipping 0.2, advantage 1


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
    weighed = score_weights(ObjectiveSettings("real", tau=TAU), table.flatten(), labels, groups)
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


@dataclass(frozen=True)
class Proposition:
    """How well the code's weights obey Proposition 5.1 over random groups."""

    groups: int
    error: float  # largest |code - closed form|
    largest: float  # largest tau |W|; the proposition says below 1
    monotone: bool  # falling in a positive's own score, rising in a negative's


def proposition_5_1(groups: int = 500, size: int = 8, seed: int = 0) -> Proposition:
    """Random mixed groups and temperatures against the closed form of Eq. REAL gradient, in float64."""
    random = np.random.default_rng(seed)
    error = largest = 0.0
    for tau in (0.1, 0.5, 1.0):
        scores = random.normal(scale=tau, size=(groups, size))
        labels = np.stack([random.permutation([1] * p + [0] * (size - p)) for p in random.integers(1, size, groups)])
        index = torch.arange(groups).repeat_interleave(size)
        weighed = score_weights(
            ObjectiveSettings("real", tau=tau), torch.tensor(scores).flatten(), torch.tensor(labels).flatten(), index
        )
        code = weighed.rollout_weights.view(groups, size).abs().numpy()
        pull = np.where(labels == 1, -scores, scores) / tau  # the exponent of a rollout's own term
        same = labels[:, :, None] == labels[:, None, :]
        others = 1 + (np.exp(pull)[:, None, :] * same).sum(-1) - np.exp(pull)  # C of the proposition
        closed = 1 / tau / (1 + others * np.exp(-pull))
        error = max(error, float(np.abs(code - closed).max()))
        largest = max(largest, float(tau * code.max()))
    falling = np.diff(figure_one(POSITIVE).real) < 0
    rising = np.diff(figure_one(NEGATIVE).real) > 0
    return Proposition(3 * groups, error, largest, bool(falling.all() and rising.all()))


def bound() -> float:
    return 1 / TAU


def clip_edges() -> tuple[float, float]:
    """Relative log-probabilities at which GRPO's clipping sets in."""
    return math.log(1 - EPSILON), math.log(1 + EPSILON)
