"""VESPO (arXiv 2602.10693), made for old answers, with TRL 1.16's weights:

    real-openrlhf train --algo examples/objectives/vespo.py:vespo

mean of -phi(w) A s: s is the sum of log-ratios to the sampler, w = exp(s) as a constant, A the z-scored reward, and
phi(w) = e^l w^k e^(-l w) with k and l of the advantage's sign. phi(1) is 1, and phi falls on both sides of k / l.
This is the mean over rollouts, the authors' `seq-mean-token-sum`. TRL and the authors' default divide by tokens: the
same direction, a smaller size. The z-score here has the population's deviation.
"""

import torch

from real_openrlhf.algorithm.formulas import Constant, Objective

LEAST, MOST = -18.4, 20.0  # TRL's bounds of log w


def smooth_weight(scores, groups, settings):
    advantages = groups.zscores(groups.values, groups.valid)
    k, slope = (
        torch.where(advantages >= 0, settings[f"{name}_right"], settings[f"{name}_wrong"]) for name in ("k", "l")
    )
    log_weight = scores.detach().clamp(LEAST, MOST)
    phi = (slope + k * log_weight - slope * log_weight.exp()).exp()
    return -groups.mean(phi * advantages * scores, groups.valid)


vespo = Objective(
    smooth_weight,
    about="policy gradient with a smooth weight of the whole answer's ratio to the sampler",
    graded=True,
    score="sum_log_ratio_rollout",
    settings={
        "k_right": Constant(2.0, "power of w, advantages of 0 and above", above=0),
        "l_right": Constant(3.0, "decay in w, advantages of 0 and above", above=0),
        "k_wrong": Constant(3.0, "power of w, advantages below 0", above=0),
        "l_wrong": Constant(2.0, "decay in w, advantages below 0", above=0),
    },
)
