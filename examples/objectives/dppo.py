"""DPPO (arXiv 2602.04879): a trust region on the probabilities in place of a clipped ratio. Our reading:

    real-openrlhf train --algo examples/objectives/dppo.py:dppo

Token mean of r A, r = pi / pi_old, without the tokens that A would move further than |pi - pi_old| = far from the old
policy. A rare token may thus change its ratio a lot, a likely one only a little.
"""

from real_openrlhf.algorithm.formulas import Constant, TokenLoss


def divergence_masked(log_ratio, advantage, mask, group):
    ratio = log_ratio.clamp(-20, 20).exp()
    moved = group.old.exp() * (ratio - 1)  # pi - pi_old of the sampled token
    away = moved * advantage > 0
    return (ratio * advantage).where(~(away & (moved.abs() > group["far"])), 0.0)


dppo = TokenLoss(
    divergence_masked,
    about="policy gradient within a trust region on probabilities",
    mean="token-mean",
    settings={"far": Constant(0.2, "largest |pi - pi_old| beyond which nothing pushes", above=0)},
)
