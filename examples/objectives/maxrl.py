"""MaxRL (arXiv 2602.02710), our reading: a policy gradient with rewards over their group's mean.

    real-openrlhf train --algo examples/objectives/maxrl.py:maxrl

-mean (r - mean r) / mean r * s over the group, r 1 for a correct response, else 0; 0 without a correct one.
"""

from real_openrlhf.algorithm.formulas import Objective, log_ratios


def over_the_mean(scores, groups, settings):
    rewards = groups.positive.to(scores)
    rate = groups.mean(rewards, groups.valid)[groups.index]
    weights = (rewards - rate) / rate.where(rate > 0, 1.0)
    return -groups.mean(weights * scores, groups.valid)


maxrl = Objective(
    over_the_mean,
    about="policy gradient with rewards over their group's mean: maximum likelihood of a correct response",
    score="sum_log_ratio_old",
    settings=log_ratios("sum_log_ratio_old"),
)
