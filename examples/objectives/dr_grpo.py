"""Dr. GRPO (arXiv 2503.20783): GRPO without division by the rewards' deviation and by the response's own length.

    real-openrlhf train --algo examples/objectives/dr_grpo.py:dr_grpo

Mean over responses of 1/length sum_t min(r A, clip(r) A), A = 1 - q for a correct response and -q for an incorrect
one, q the prompt's share of correct responses. `length` is a constant: set it to --rollout.max_new_tokens. OpenRLHF's
estimator `dr_grpo` leaves out the deviation alone, because --actor.loss_agg_mode knows no constant length. Rewards
are 1 and 0: a penalty for length in --reward.* is not read.
"""

from real_openrlhf.algorithm.formulas import Constant, TokenLoss


def constant_length(log_ratio, advantage, mask, group):
    ratio, clip = log_ratio.clamp(-20, 20).exp(), group["clip"]
    advantage = group.positive.to(ratio) - group.rate
    clipped = ((advantage > 0) & (ratio > 1 + clip)) | ((advantage < 0) & (ratio < 1 - clip))
    tokens = mask.sum(-1, keepdim=True)  # the mean over a response's tokens divides by them
    return (ratio * advantage * tokens / group["length"]).masked_fill(clipped, 0.0)


dr_grpo = TokenLoss(
    constant_length,
    about="GRPO's surrogate with rewards less their mean, summed over tokens and divided by a constant length",
    graded=False,
    settings={
        "length": Constant(1024.0, "tokens by which every response is divided", above=0),
        "clip": Constant(0.2, "GRPO's clip range", above=0),
    },
)
