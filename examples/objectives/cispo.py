"""CISPO (MiniMax-M1, arXiv 2506.13585, Eq. 4 and 5) and REINFORCE, from which it starts:

    real-openrlhf train --algo examples/objectives/cispo.py:cispo

A token's weight is its clipped ratio, a constant, times the advantage, so every token keeps its gradient; GRPO's clip
takes it away. Token mean, advantages as GRPO's. `reinforce` does not clip.
"""

from real_openrlhf.algorithm.formulas import Constant, TokenLoss


def ratio_of(log_ratio):
    return log_ratio.clamp(-20, 20).exp()  # OpenRLHF's bound for its own ratios


class RatioLoss(TokenLoss):
    def clipped(self, weights, log_ratio):
        return weights.abs() != ratio_of(log_ratio)


def clipped_ratio(log_ratio, advantage, mask, group):
    return ratio_of(log_ratio).clamp(1 - group["low"], 1 + group["high"]) * advantage


def whole_ratio(log_ratio, advantage, mask, group):
    return ratio_of(log_ratio) * advantage


cispo = RatioLoss(
    clipped_ratio,
    about="clipped importance weights as constants, so every token keeps its gradient",
    mean="token-mean",
    # weights in [0, 5]: its paper has no lower bound and names no upper one, TRL advises 5
    settings={
        "low": Constant(1.0, "how far below 1 a ratio may be", above=0),
        "high": Constant(4.0, "how far above 1 a ratio may be", above=0),
    },
)
reinforce = RatioLoss(whole_ratio, about="importance weights without a clip", mean="token-mean")
