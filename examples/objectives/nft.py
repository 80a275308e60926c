"""NFT (arXiv 2505.18116), which learns from incorrect responses by an implicit policy of them. Our reading:

    real-openrlhf train --algo examples/objectives/nft.py:nft

Token mean of -sqrt((1 - q) / q) log R, q the prompt's share of correct responses, R the ratio r of a correct one and
max(eps, (1 - q r) / (1 - q)) of an incorrect one. The maximum is in the value alone; its gradient passes through.
This is the released code's `normalize=2`. Its scripts use `normalize=1`, where 1 - q stands for the root, which weighs
prompts with few correct responses less, and it clamps q to [0.02, 0.98].
"""

import torch

from real_openrlhf.algorithm.formulas import Constant, TokenLoss


def negative_aware(log_ratio, advantage, mask, group):
    ratio, rate = log_ratio.clamp(-20, 20).exp(), group.rate
    mixed = (rate > 0) & (rate < 1)
    rate = rate.where(mixed, 0.5)
    implicit = (1 - rate * ratio) / (1 - rate)
    wrong = -rate * ratio / (1 - rate) / implicit.clamp(min=group["eps"])
    weights = torch.where(group.positive, 1.0, wrong) * ((1 - rate) / rate).sqrt()
    return weights.where(mixed, 0.0)


nft = TokenLoss(
    negative_aware,
    about="likelihood of correct responses, and of an implicit policy of incorrect ones",
    mean="token-mean",
    settings={"eps": Constant(1.0, "smallest ratio of the implicit policy", above=0)},
)
