"""Learning from one class of responses (arXiv 2506.01347, our reading): PSR from the correct ones alone, NSR from the
incorrect ones alone, and W-REINFORCE from both, the correct ones with a tenth of the weight:

    real-openrlhf train --algo examples/objectives/psr_nsr.py:nsr

-mean w s over the group, w = `right` for a correct response and -`wrong` for an incorrect one.
"""

from real_openrlhf.algorithm.formulas import Constant, Objective, log_ratios


def by_class(scores, groups, settings):
    right = groups.positive.to(scores)
    weights = settings["right"] * right - settings["wrong"] * (1 - right)
    return -groups.mean(weights * scores, groups.valid)


def reinforcing(right, wrong, about):
    settings = {
        "right": Constant(right, "weight of a correct response"),
        "wrong": Constant(wrong, "weight of an incorrect response"),
        **log_ratios("sum_log_ratio_old"),
    }
    return Objective(by_class, about=about, two_sides=False, score="sum_log_ratio_old", settings=settings)


psr = reinforcing(1.0, 0.0, "policy gradient of correct responses alone")
nsr = reinforcing(0.0, 1.0, "policy gradient of incorrect responses alone")
w_reinforce = reinforcing(0.1, 1.0, "policy gradient with a tenth of the weight on correct responses")
