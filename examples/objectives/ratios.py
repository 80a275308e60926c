"""Controls that ask what the ratio in GRPO's gradient does. All four train the same tokens; `ratio_both` is GRPO:

    real-openrlhf train --algo examples/objectives/ratios.py:ratio_none

A token that GRPO's clip leaves has the weight ratio times A for correct responses, incorrect ones, both or none;
for the others it is A.
"""

from functools import partial

from real_openrlhf.algorithm.formulas import Constant, TokenLoss

CLIP = {
    "low": Constant(0.2, "an incorrect response's token below 1 - low has weight 0", above=0),
    "high": Constant(0.2, "a correct response's token above 1 + high has weight 0", above=0),
}


def keeping(right, wrong, log_ratio, advantage, mask, group):
    ratio = log_ratio.clamp(-20, 20).exp()
    clipped = ((advantage > 0) & (ratio > 1 + group["high"])) | ((advantage < 0) & (ratio < 1 - group["low"]))
    kept = (advantage > 0) & right | (advantage <= 0) & wrong
    return (ratio.where(kept, 1.0) * advantage).masked_fill(clipped, 0.0)


ratio_both, ratio_right, ratio_wrong, ratio_none = (
    TokenLoss(partial(keeping, right, wrong), about="GRPO's clip, with the ratio on chosen sides", settings=CLIP)
    for right, wrong in ((True, True), (True, False), (False, True), (False, False))
)
