"""ConSPO (arXiv 2605.12969), our reading with a fixed margin: each correct response against all incorrect ones.

    real-openrlhf train --algo examples/objectives/conspo.py:conspo

mean_P -log(e^((s-margin)/tau) / (e^((s-margin)/tau) + sum_N e^(s/tau))), s the mean log-probability; 0 where a side
is empty.
"""

from real_openrlhf.algorithm.formulas import Constant, Objective, softplus, temperature


def info_nce(scores, groups, settings):
    negatives = groups.logsumexp(scores / settings.tau, groups.negative)[groups.index]
    return groups.mean(softplus(negatives - (scores - settings["margin"]) / settings.tau), groups.positive)


conspo = Objective(
    info_nce,
    about="InfoNCE: each correct response against all incorrect ones of its group, by mean log-probability",
    score="log_prob",
    settings={
        **temperature(),
        "margin": Constant(0.0, "margin of a correct response's score over the incorrect responses' scores"),
    },
)
