"""Controls of REAL that ask which part of its weights matters; the fixed-weight control is built in
(real_fixed_weights).

    real-openrlhf train --algo examples/objectives/controls.py:permuted

`permuted` exchanges REAL's weights at random inside each class of a group; `shrunk` gives each rollout the mean weight
of its class; `balanced` has means in place of sums, so that both classes weigh the same at score 0.
"""

import torch

from real_openrlhf.algorithm.formulas import Objective, log_ratios, real, softplus, temperature


def with_weights(changed, scores, groups, settings):
    """REAL's loss, with `changed(its weights, groups)` as its gradient."""
    leaf = scores.detach().requires_grad_()
    (weights,) = torch.autograd.grad(real(leaf, groups, settings).sum(), leaf)
    surrogate = groups.sum(changed(weights, groups) * scores, groups.valid)
    return real(scores, groups, settings).detach() + (surrogate - surrogate.detach())


def exchanged(values, groups):
    """The values, permuted inside each class of each group."""
    classes = 3 * groups.index + 2 * groups.positive.long() + groups.negative.long()
    order = groups.index.argsort(stable=True)
    sizes = torch.bincount(groups.index, minlength=groups.count)
    within = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[groups.index[order]]
    places = within.new_zeros(len(order)).index_copy(0, order, within)
    giving = chances(groups.step, groups.ids[groups.index], places).argsort(stable=True)
    giving, taking = giving[classes[giving].argsort(stable=True)], classes.argsort(stable=True)
    return values.new_zeros(len(values)).index_copy(0, taking, values[giving]).where(groups.valid, 0.0)


def chances(step, groups, places):
    """A random number per rollout, hashed from step, group and place in it: every rank draws the same."""
    mixed = (step * 1_000_003 + groups.long()) * 1_000_003 + places
    for factor in (-7046029254386353131, -4658895280553007687):  # int64 arithmetic wraps
        mixed = (mixed ^ (mixed >> 31)) * factor
    return mixed ^ (mixed >> 31)


def class_means(values, groups):
    sides = [groups.mean(values, side)[groups.index] for side in (groups.positive, groups.negative)]
    return sides[0].where(groups.positive, sides[1])


def permuted_weights(scores, groups, settings):
    return with_weights(exchanged, scores, groups, settings)


def shrunk_weights(scores, groups, settings):
    return with_weights(class_means, scores, groups, settings)


def means_for_sums(scores, groups, settings):
    """log(1 + mean_P exp(-s/tau)) + log(1 + mean_N exp(s/tau))"""
    positives = groups.logmeanexp(-scores / settings.tau, groups.positive)
    negatives = groups.logmeanexp(scores / settings.tau, groups.negative)
    return softplus(positives) + softplus(negatives)


OF_REAL = {**temperature(), **log_ratios()}
permuted = Objective(permuted_weights, about="REAL's weights exchanged at random in each class", settings=OF_REAL)
shrunk = Objective(shrunk_weights, about="fixed weights with REAL's sum in each class", settings=OF_REAL)
balanced = Objective(means_for_sums, about="REAL with means in place of sums", settings=OF_REAL)
