"""Losses that put a constant weight on each token's log-probability, beside OpenRLHF's own clipped surrogates.

GRPO's surrogate gives no gradient to a token whose ratio has left the clip range. CISPO (MiniMax-M1, arXiv 2506.13585,
Eq. 4 and 5) clips the ratio and trains the token with the clipped ratio. `reinforce`, from which CISPO starts, does
not clip it. No torch import at the top, because flags are made from these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Clip = tuple[float, float]  # (low, high): how far below and above 1 a ratio may be
MAX_LOG_RATIO = 20.0  # OpenRLHF's bound for its own ratios: exp stays finite
TOKEN_WEIGHTS = ("cispo", "reinforce")


def token_weights(name: str, log_ratio: Tensor, clip: Clip) -> Tensor:
    """The constant factor of each token's advantage."""
    ratio = log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return ratio.clamp(1 - clip[0], 1 + clip[1]) if name == "cispo" else ratio


def weighted_loss(name: str, log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: Clip) -> Tensor:
    """The loss of each token, before any mean: its gradient is -weight * advantage * d log pi."""
    return -token_weights(name, log_probs - old_log_probs, clip) * advantages * log_probs


def clipped(name: str, log_ratio: Tensor, clip: Clip) -> Tensor:
    """Mask of the tokens that clipping changes."""
    return token_weights(name, log_ratio, clip) != token_weights("reinforce", log_ratio, clip)
