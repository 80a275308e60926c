"""How far the policy that is trained is from the sampler that drew its rollouts, on the tokens that were sampled.

Both should be one model. They are two programs, so they round differently; what is more than rounding is a fault, and
the gradient is then that of other rollouts than those that were drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor

MISMATCH_METRICS = {
    "mismatch/mean": "mean over sampled tokens of |log pi - log pi of vLLM|, before the policy moves",
    "mismatch/max": "the largest of these",
    "mismatch/kl": "mean over sampled tokens of log pi of vLLM - log pi: an estimate of the KL to the policy",
    "mismatch/rollout_max": "largest mean gap of a rollout: what `--algo.real.mismatch_limit` is compared with",
}

# A trained model's logits lie between 16 and 32, where neighbouring bf16 numbers are 1/8 apart: either side rounds a
# token's logit by 1/16 at most, and on average over tokens, most of which are nearly certain, by far less. So a mean
# above 1/16 is more than the number format says. Eight times that makes a typical token 1.6 times likelier on one side
# than on the other, beyond every clip range: no rounding does it. Logits are divided by the temperature after that.
WARN_ABOVE, STOP_ABOVE = 1 / 16, 1 / 2

SUMS, LARGEST = 3, 2  # entries of what `gaps` returns


def token_gaps(policy: Tensor, sampler: Tensor, action_mask: Tensor) -> Tensor:
    """(B, T) log pi of vLLM - log pi in float32, 0 where nothing was sampled."""
    return torch.where(action_mask.bool(), sampler.detach().float() - policy.detach().float(), 0.0)


def rollout_gaps(policy: Tensor, sampler: Tensor, action_mask: Tensor) -> Tensor:
    """(B,) mean over a rollout's tokens of the absolute gap; 0 without tokens."""
    return token_gaps(policy, sampler, action_mask).abs().sum(-1) / action_mask.bool().sum(-1).clamp(min=1)


def gaps(policy: Tensor, sampler: Tensor, action_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Of a micro-batch, in float64 on its device: (tokens and sums, to add up), (maxima, to take the largest of)."""
    each = token_gaps(policy, sampler, action_mask)
    sums = torch.stack([action_mask.bool().sum().double(), each.abs().double().sum(), each.double().sum()])
    largest = torch.stack([each.abs().max(), rollout_gaps(policy, sampler, action_mask).max()]).double()
    return sums, largest


def no_gaps(device: torch.device | str) -> tuple[Tensor, Tensor]:
    """What `gaps` are added to."""
    zeros = torch.zeros(SUMS + LARGEST, dtype=torch.float64, device=device)
    return zeros[:SUMS], zeros[SUMS:]


def mismatch_metrics(sums: Tensor, largest: Tensor) -> dict[str, float]:
    """`MISMATCH_METRICS` of what all ranks' tokens gave; 0 without tokens."""
    tokens, absolute, signed = sums.tolist()
    count = max(tokens, 1)
    values = (absolute / count, float(largest[0]), signed / count, float(largest[1]))
    return dict(zip(MISMATCH_METRICS, values, strict=True))
