"""IcePop (arXiv 2510.18855), which leaves out the tokens on which trainer and sampler disagree. Our reading:

    real-openrlhf train --algo examples/objectives/icepop.py:icepop

Token mean of k times GRPO's clipped surrogate, k = pi_old / pi of vLLM, 0 outside [low, high].
"""

from real_openrlhf.algorithm.formulas import Constant, TokenLoss


def masked_correction(log_ratio, advantage, mask, group):
    ratio, gap = (one.clamp(-20, 20).exp() for one in (log_ratio, group.gap))
    clip = group["clip"]
    clipped = ((advantage > 0) & (ratio > 1 + clip)) | ((advantage < 0) & (ratio < 1 - clip))
    trusted = (gap >= group["low"]) & (gap <= group["high"])
    return (gap * ratio * advantage).where(trusted & ~clipped, 0.0)


icepop = TokenLoss(
    masked_correction,
    about="GRPO's surrogate of the tokens on which trainer and sampler agree",
    mean="token-mean",
    settings={
        "low": Constant(0.5, "smallest pi_old / pi of vLLM that is trained", above=0),
        "high": Constant(5.0, "largest pi_old / pi of vLLM that is trained", above=0),
        "clip": Constant(0.2, "GRPO's clip range", above=0),
    },
)
