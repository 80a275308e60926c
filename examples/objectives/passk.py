"""Weights that ask for one correct response among k: Pass@k Training (arXiv 2508.10751, by its code) and PKPO (arXiv
2505.15201, Eq. 33):

    real-openrlhf train --algo examples/objectives/passk.py:pass_at_k --algo.real.set k=4

-mean w s over the group. Of n graded responses m are incorrect, and q = 1 - C(m, k) / C(n, k) is the group's pass@k.
`pass_at_k`: w is (1 - q) / sigma for a correct response, (1 - q - C(m-1, k-1) / C(n-1, k-1)) / sigma for an incorrect
one, sigma^2 = q (1 - q). `pkpo`: w is what a correct response adds to pass@k, k/n C(m, k-1) / C(n-1, k-1), and 0 for
an incorrect one. A group of fewer than k graded responses takes k = n. All weights are 0 where q is 0 or 1.
`pass_at_k_clipped` has the weights of `pass_at_k` as advantages of DAPO's clipped token loss.
"""

import torch

from real_openrlhf.algorithm.formulas import Constant, Objective, TokenLoss, log_ratios


def choose(n, k):
    """C(n, k), 0 for k > n."""
    fits = k <= n
    n = n.where(fits, k)
    return ((n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()).exp().where(fits, 0.0)


def standardized(n, wrong, most):
    """(weight of a correct response, of an incorrect one) in groups of n, of which so many are wrong."""
    n, wrong = n.double(), wrong.double()  # lgamma's digits are lost in a difference
    k = n.clamp(min=1, max=most)
    missed = choose(wrong, k) / choose(n, k).clamp(min=1)
    spread = (missed * (1 - missed)).sqrt()
    without = choose(wrong - 1, k - 1) / choose(n - 1, k - 1).clamp(min=1)
    mixed, spread = spread > 1e-9, spread.clamp(min=1e-9)
    return ((missed / spread).where(mixed, 0.0), ((missed - without) / spread).where(mixed, 0.0))


def times_scores(right, wrong, scores, groups):
    """-mean w s, w the group's weight of a correct or an incorrect response."""
    weights = torch.where(groups.positive, right[groups.index], wrong[groups.index]).to(scores)
    return -groups.mean(weights * scores, groups.valid)


def of_groups(scores, groups, settings):
    weights = standardized(groups.size(groups.valid), groups.size(groups.negative), settings["k"])
    return times_scores(*weights, scores, groups)


def added(scores, groups, settings):
    n, wrong = (groups.size(side).double() for side in (groups.valid, groups.negative))
    k = n.clamp(min=1, max=settings["k"])
    right = k / n.clamp(min=1) * choose(wrong, k - 1) / choose(n - 1, k - 1).clamp(min=1)
    return times_scores(right, torch.zeros_like(right), scores, groups)


def of_tokens(log_ratio, advantage, mask, group):
    right = (group.rate * group.size).round()
    weights = standardized(group.size, group.size - right, group["k"])
    advantage = torch.where(group.positive, *weights).to(log_ratio)
    ratio = log_ratio.clamp(-20, 20).exp()
    clipped = ((advantage > 0) & (ratio > 1 + group["high"])) | ((advantage < 0) & (ratio < 1 - group["low"]))
    return (ratio * advantage).masked_fill(clipped, 0.0)


K = Constant(4, "responses of which one has to be correct", above=0, whole=True)
OF_SCORES = {"k": K, **log_ratios("sum_log_ratio_old")}
pass_at_k = Objective(
    of_groups, about="policy gradient of pass@k, standardized weights", score="sum_log_ratio_old", settings=OF_SCORES
)
pkpo = Objective(
    added, about="policy gradient of pass@k, a response's share in it", score="sum_log_ratio_old", settings=OF_SCORES
)
pass_at_k_clipped = TokenLoss(
    of_tokens,
    about="DAPO's surrogate, with the weights of Pass@k Training for advantages",
    graded=False,
    mean="token-mean",
    settings={
        "k": K,
        "low": Constant(0.2, "an incorrect response's token below 1 - low has weight 0", above=0),
        "high": Constant(0.28, "a correct response's token above 1 + high has weight 0", above=0),
    },
)
