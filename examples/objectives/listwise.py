"""Cross-entropy to a target made from the group's rewards, graded ones too: our reading of TPO (arXiv 2604.06159),
LPO (2605.06139) and ADPO (2510.18913).

    real-openrlhf train --algo examples/objectives/listwise.py:listwise

-sum q log softmax(s), q = softmax(u/eta), u the z-scored rewards of the group; 0 where they are equal.
"""

from real_openrlhf.algorithm.formulas import Constant, Objective, log_ratios


def to_target(scores, groups, settings):
    target = groups.log_softmax(groups.zscores(groups.values, groups.valid) / settings["eta"], groups.valid).exp()
    losses = -target.to(scores) * groups.log_softmax(scores, groups.valid)
    return groups.sum(losses, groups.valid & ~groups.uniform(groups.values))


listwise = Objective(
    to_target,
    about="cross-entropy to a target made from the group's rewards",
    score="sum_log_ratio_old",
    graded=True,
    settings={
        "eta": Constant(1.0, "temperature of the target: above 1 closer to uniform", above=0),
        **log_ratios("sum_log_ratio_old"),
    },
)
