"""DisCO on log-likelihoods (the better variant in its paper's table) and on likelihood ratios, by its code.

    real-openrlhf train --algo examples/objectives/disco.py:disco_logl

-(mean_P s - tau log mean_N exp(s/tau)), an empty side 0. DisCO's squared-hinge constraint needs the KL of a whole
update, which a file does not see: --algo.real.kl_old_coef is the nearest that there is.
"""

from real_openrlhf.algorithm.formulas import Objective, temperature


def discriminative(scores, groups, settings):
    push = settings.tau * groups.logmeanexp(scores / settings.tau, groups.negative)
    return push.masked_fill(groups.size(groups.negative) == 0, 0.0) - groups.mean(scores, groups.positive)


disco_logl = Objective(
    discriminative, about="DisCO on log-likelihoods, unconstrained", score="log_prob", settings=temperature(10.0)
)
disco_lratio = Objective(
    discriminative, about="DisCO on likelihood ratios, unconstrained", score="ratio_old", settings=temperature(1.0)
)
