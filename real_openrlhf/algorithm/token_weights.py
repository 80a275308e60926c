"""Two losses that put a constant weight on each token's log-probability, beside OpenRLHF's own clipped surrogates.

GRPO's surrogate gives no gradient to a token whose ratio has left the clip range. CISPO (MiniMax-M1, arXiv 2506.13585,
Eq. 4 and 5) clips the ratio and trains the token with the clipped ratio. `reinforce`, from which CISPO starts, does
not clip it. No torch import at the top, because flags are made from these names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from real_openrlhf.algorithm.formulas import Constant, Constants, TokenLoss

if TYPE_CHECKING:
    from torch import Tensor

MAX_LOG_RATIO = 20.0  # OpenRLHF's bound for its own ratios: exp stays finite


def ratio_of(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def cispo(log_ratio: Tensor, advantage: Tensor, mask: Tensor, group: Constants) -> Tensor:
    return ratio_of(log_ratio).clamp(1 - group["low"], 1 + group["high"]) * advantage


def reinforce(log_ratio: Tensor, advantage: Tensor, mask: Tensor, group: Constants) -> Tensor:
    return ratio_of(log_ratio) * advantage


class RatioLoss(TokenLoss):
    def clipped(self, weights: Tensor, log_ratio: Tensor) -> Tensor:
        return weights.abs() != ratio_of(log_ratio)


# --actor.policy_loss_type; low and high are --actor.eps_clip_low_high, how far below and above 1 a ratio may be
_CLIP = {"low": Constant(0.2, "below 1"), "high": Constant(0.2, "above 1")}
TOKEN_WEIGHTS = {"cispo": RatioLoss(cispo, settings=_CLIP), "reinforce": RatioLoss(reinforce, settings=_CLIP)}
