"""ReNCE (arXiv 2601.22432), REAL's nearest kin. Our reading of its abstract; its own score may differ:

    real-openrlhf train --algo examples/objectives/rence.py:rence

log sum over all responses of e^(s / tau), less the same over the correct ones: all correct responses together
against all, without an anchor. A group of one class has loss 0.
"""

import torch

from real_openrlhf.algorithm.formulas import Objective


def right_against_all(scores, groups, settings):
    right, every = (groups.logsumexp(scores / settings.tau, side) for side in (groups.positive, groups.valid))
    mixed = (groups.size(groups.positive) > 0) & (groups.size(groups.negative) > 0)
    zero = torch.zeros_like(every)
    return torch.where(mixed, every, zero) - torch.where(mixed, right, zero)


rence = Objective(right_against_all, about="cross-entropy of the correct responses' share among all")
