"""Losses of a micro-batch's tokens: OpenRLHF's own PolicyLoss, and CISPO and REINFORCE, which it lacks."""

from typing import Any

import torch
from openrlhf.models.loss import PolicyLoss, aggregate_loss
from openrlhf.models.utils import masked_mean

from real_openrlhf.algorithm.token_weights import TOKEN_WEIGHTS, clipped, weighted_loss


def loss_of(upstreams: PolicyLoss) -> PolicyLoss:
    """Upstream's loss unchanged, or for CISPO and REINFORCE our loss with the same settings."""
    if upstreams.policy_loss_type not in TOKEN_WEIGHTS:
        return upstreams
    return WeightedPolicyLoss(
        clip_eps_low=upstreams.clip_eps_low,
        clip_eps_high=upstreams.clip_eps_high,
        token_level_loss=upstreams.token_level_loss,
        policy_loss_type=upstreams.policy_loss_type,
    )


class WeightedPolicyLoss(PolicyLoss):
    """A constant weight on each token's log-probability. Upstream's sampler correction is refused with it.

    `totals` are the denominators of the update's mean, which upstream's loss passes to `aggregate_loss` too.
    """

    def forward(
        self,
        log_probs: torch.Tensor,
        old_log_probs: torch.Tensor,
        advantages: torch.Tensor,
        action_mask: torch.Tensor | None = None,
        rollout_log_probs: torch.Tensor | None = None,
        **totals: Any,
    ) -> tuple:
        clip = self.clip_eps_low, self.clip_eps_high
        log_ratio = (log_probs - old_log_probs).detach()
        each = weighted_loss(self.policy_loss_type, log_probs, old_log_probs, advantages, clip)
        loss = aggregate_loss(each, action_mask, token_level_loss=self.token_level_loss, **totals)
        is_clipped = clipped(self.policy_loss_type, log_ratio, clip)
        share = masked_mean(is_clipped.float(), action_mask, dim=None)
        return loss, share, masked_mean(-log_ratio, action_mask, dim=None), None, None
