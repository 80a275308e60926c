"""Losses that put a constant weight on each token's log-probability, beside OpenRLHF's own clipped surrogates.

GRPO's surrogate gives no gradient to a token whose ratio has left the clip range. CISPO (MiniMax-M1, arXiv 2506.13585,
Eq. 4 and 5) clips the ratio and trains the token with the clipped ratio. `reinforce`, from which CISPO starts, does
not clip it. Four more ask what the ratio in GRPO's gradient does. No torch import at the top, because flags are made
from these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Clip = tuple[float, float]  # (low, high): how far below and above 1 a ratio may be
MAX_LOG_RATIO = 20.0  # OpenRLHF's bound for its own ratios: exp stays finite
# GRPO's clipped surrogate, with the ratio as a factor of the gradient only for tokens of right answers (advantage
# above 0), of wrong ones, of both or of neither. All four train the same tokens; `ratio_both` is GRPO.
KEEPS_RATIO = {
    "ratio_both": (True, True),
    "ratio_right": (True, False),
    "ratio_wrong": (False, True),
    "ratio_none": (False, False),
}
TOKEN_WEIGHTS = ("cispo", "reinforce", *KEEPS_RATIO)


def token_weights(name: str, log_ratio: Tensor, clip: Clip, advantages: Tensor) -> Tensor:
    """The constant factor of each token's advantage; of the advantages only the sign counts."""
    ratio = _ratio(log_ratio)
    if name == "cispo":
        return ratio.clamp(1 - clip[0], 1 + clip[1])
    if name == "reinforce":
        return ratio
    right, wrong = KEEPS_RATIO[name]
    kept = (advantages > 0) & right | (advantages <= 0) & wrong
    return ratio.where(kept, 1.0).masked_fill(_outside(ratio, clip, advantages), 0.0)


def weighted_loss(name: str, log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: Clip) -> Tensor:
    """The loss of each token, before any mean: its gradient is -weight * advantage * d log pi."""
    return -token_weights(name, log_probs - old_log_probs, clip, advantages) * advantages * log_probs


def clipped(name: str, log_ratio: Tensor, clip: Clip, advantages: Tensor) -> Tensor:
    """Mask of the tokens that clipping changes."""
    ratio = _ratio(log_ratio)
    if name in KEEPS_RATIO:
        return _outside(ratio, clip, advantages)
    return token_weights(name, log_ratio, clip, advantages) != ratio


def _outside(ratio: Tensor, clip: Clip, advantages: Tensor) -> Tensor:
    """The tokens to which PPO's surrogate gives no gradient."""
    low, high = 1 - clip[0], 1 + clip[1]
    return ((advantages > 0) & (ratio > high)) | ((advantages < 0) & (ratio < low))


def _ratio(log_ratio: Tensor) -> Tensor:
    return log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
