"""GRPO's policy gradient with the reverse KL to the reference model inside each token's advantage:

    real-openrlhf train --algo examples/objectives/reverse_kl.py:reverse_kl

Token mean of r (A - coef (log pi_old - log pi_ref)). With A = 0 it is on-policy distillation from the reference model,
which in OpenRLHF is the model that the run starts from.
"""

from real_openrlhf.algorithm.formulas import Constant, TokenLoss


def pulled(log_ratio, advantage, mask, group):
    return log_ratio.clamp(-20, 20).exp() * (advantage - group["coef"] * (group.old - group.reference))


reverse_kl = TokenLoss(
    pulled,
    about="policy gradient with the reverse KL to the reference model in the advantage",
    mean="token-mean",
    two_sides=False,
    reads_reference=True,
    settings={"coef": Constant(0.1, "of the KL", above=0)},
)
