"""A verifier that errs at known rates, corrected (arXiv 2510.00915, after Natarajan and others, 2013):

    real-openrlhf train --algo examples/objectives/noise.py:unbiased_bce

`fn_rate` is the share of correct responses that the verifier calls incorrect, `fp_rate` that of incorrect ones that it
calls correct. `unbiased_bce` (the paper's backward correction) is REAL with BCE, whose mean over the verifier's errors
is the loss of the true labels: a response called correct has ((1 - fp) l(+) - fn l(-)) / (1 - fn - fp), one called
incorrect ((1 - fn) l(-) - fp l(+)) / (1 - fn - fp). It is not convex and has no lower bound.
`forward`: -mean (label - (1 - fn)) s, which needs `fn_rate` alone and no second response to the prompt.
Both assume errors that are independent of each other. No loss mends an error that all responses of a kind share.
A reward corrected this way changes nothing in GRPO, because it is a line in the label, which the z-score undoes.
"""

import torch

from real_openrlhf.algorithm.formulas import Constant, Objective, log_ratios, softplus, temperature


def rates(fn, fp=0.0):
    if min(fn, fp) < 0 or fn + fp >= 1:
        raise ValueError(f"fn_rate={fn:g} fp_rate={fp:g}: use rates of 0 or more whose sum is below 1")
    return fn, fp


def corrected(scores, groups, settings):
    fn, fp = rates(settings["fn_rate"], settings["fp_rate"])
    right, wrong = (softplus(sign * scores / settings.tau) for sign in (-1, 1))
    called_right = (1 - fp) * right - fn * wrong
    called_wrong = (1 - fn) * wrong - fp * right
    return groups.sum(torch.where(groups.positive, called_right, called_wrong), groups.valid) / (1 - fn - fp)


def reweighted(scores, groups, settings):
    fn, _ = rates(settings["fn_rate"])
    weights = groups.positive.to(scores) - (1 - fn)
    return -groups.mean(weights * scores, groups.valid)


FN_RATE = Constant(0.1, "share of correct responses that the verifier calls incorrect", below=1)
FP_RATE = Constant(0.0, "share of incorrect responses that the verifier calls correct", below=1)
unbiased_bce = Objective(
    corrected,
    about="REAL with BCE, unbiased under a verifier's errors at known rates",
    two_sides=False,
    settings={**temperature(), "fn_rate": FN_RATE, "fp_rate": FP_RATE, **log_ratios()},
)
forward = Objective(
    reweighted,
    about="policy gradient with the forward correction of correct responses that were missed",
    two_sides=False,
    score="sum_log_ratio_old",
    settings={"fn_rate": FN_RATE, **log_ratios("sum_log_ratio_old")},
)
