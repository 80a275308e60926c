"""Does vLLM sample from the trained policy? The gaps between their log-probabilities of one token.

Both programs run the same model and should differ by rounding only: else the rollouts come from another policy.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from real_openrlhf.algorithm.metrics import MISMATCH_METRICS

# A trained model's logits lie between 16 and 32, where neighbouring bf16 numbers are 1/8 apart: either side rounds a
# token's logit by 1/16 at most, and on average over tokens, most of which are nearly certain, by far less. So a mean
# above 1/16 is more than bf16 can explain. At 1/2 a typical token is 1.6 times likelier on one side than on the other,
# beyond every clip range: rounding cannot cause it. The division by the temperature comes after this rounding.
WARN_ABOVE, STOP_ABOVE = 1 / 16, 1 / 2
LOOK_AT = (
    "Look at the weight sync (with LoRA: are the adapters in it?), at whether --actor.model_name_or_path and the "
    "checkpoint are the same model, and at what changes the policy's own numbers: --ds.packing_samples, "
    "--ds.attn_implementation, --ds.fused_logprobs"
)


def token_gaps(policy: Tensor, sampler: Tensor, action_mask: Tensor) -> Tensor:
    """(B, T) log pi of vLLM - log pi in float32, 0 where nothing was sampled."""
    return torch.where(action_mask.bool(), sampler.detach().float() - policy.detach().float(), 0.0)


def gaps(policy: Tensor, sampler: Tensor, action_mask: Tensor) -> tuple[Tensor, Tensor]:
    """A micro-batch's gaps, in float64 on its device: (tokens and sums, to add up), the largest."""
    each = token_gaps(policy, sampler, action_mask)
    sums = torch.stack([action_mask.bool().sum().double(), each.abs().double().sum(), each.double().sum()])
    return sums, each.abs().max().double()


def mismatch_metrics(sums: Tensor, largest: Tensor) -> dict[str, float]:
    """`MISMATCH_METRICS` from the results of `gaps`, merged over all ranks; 0 without tokens."""
    tokens, absolute, signed = sums.tolist()
    count = max(tokens, 1)
    return dict(zip(MISMATCH_METRICS, (absolute / count, float(largest), signed / count), strict=True))


class MismatchError(RuntimeError):
    """vLLM samples from another model than the trained policy."""


class Mismatch:
    """Judges each step's mean gap, equal on every rank. After a warning it warns again once the gap has doubled."""

    def __init__(self, stops: bool, top_p: float, temperature: float, say: Callable[[str], None]) -> None:
        self.stops, self.say = stops, say
        # with top_p below 1 vLLM renormalizes over the kept tokens: a probability grows by a factor up to 1/top_p
        cut = -math.log(top_p)
        self.warn_above, self.stop_above = (bound / temperature + cut for bound in (WARN_ABOVE, STOP_ABOVE))

    def judge(self, mean: float, optimizer_step: int) -> None:
        """Warn if the mean gap is more than rounding explains; raise if the models look unrelated."""
        if not mean <= self.stop_above and self.stops:
            raise MismatchError(
                f"vLLM and the policy are unrelated in optimizer step {optimizer_step}: log-probabilities of "
                f"the sampled tokens differ by {mean:.3g} on average, {self.warn_above:.2g} is the most that rounding "
                f"explains. {LOOK_AT}. --rollout.mismatch log never ends the run"
            )
        if mean > self.warn_above:
            self.say(
                f"warning: log-probabilities of vLLM and of the policy differ by {mean:.3g} on average in optimizer "
                f"step {optimizer_step}; above {self.warn_above:.2g} it is more than rounding. {LOOK_AT}"
            )
            self.warn_above = 2 * mean
