"""GMPO (arXiv 2507.20673), the geometric mean of token ratios in place of their arithmetic mean:

    real-openrlhf train --algo examples/objectives/gmpo.py:gmpo

A exp(mean over tokens of l), l the log-ratio, which is cut where it exceeds `clip` in the advantage's direction. A cut
token has weight 0; the others share the rollout's factor.
"""

import torch

from real_openrlhf.algorithm.formulas import Constant, TokenLoss


def geometric_mean(log_ratio, advantage, mask, group):
    toward = torch.sign(advantage) * log_ratio  # above 0: the way that the advantage pushes
    cut = toward > group["clip"]
    kept = torch.sign(advantage) * toward.clamp(max=group["clip"])
    mean = kept.where(mask, 0.0).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return (mean.exp() * advantage).masked_fill(cut, 0.0)


gmpo = TokenLoss(
    geometric_mean,
    about="policy gradient of the geometric mean of token ratios",
    settings={"clip": Constant(0.4, "largest log-ratio of a token, as in the paper", above=0)},
)
