"""OAPL (arXiv 2602.19362), made for old answers. Our reading of its abstract and of NeMo-RL's draft:

    real-openrlhf train --algo examples/objectives/oapl.py:oapl

mean of (beta s - (r - V))^2 with V = beta log mean exp(r / beta); s is the sum of log-ratios to the sampler. A group
of equal rewards has r = V, and its loss pulls the policy back to the sampler.
"""

from real_openrlhf.algorithm.formulas import Constant, Objective


def squared_residual(scores, groups, settings):
    beta = settings["beta"]
    value = beta * groups.logmeanexp(groups.values / beta, groups.valid)
    residual = beta * scores - (groups.values - value[groups.index])
    return groups.mean(residual.where(groups.valid, 0.0) ** 2, groups.valid)


oapl = Objective(
    squared_residual,
    about="squared residual of log-ratios to the sampler and soft advantages",
    graded=True,
    two_sides=False,
    score="sum_log_ratio_rollout",
    settings={"beta": Constant(1.0, "temperature of the value, and weight of the log-ratio", above=0)},
)
