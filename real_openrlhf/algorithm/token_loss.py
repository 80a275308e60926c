"""An update with a loss of each micro-batch's tokens, such as OpenRLHF's own: it needs no other rollout's score."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from real_openrlhf.algorithm.metrics import token_gradients
from real_openrlhf.algorithm.update import Forward, Update


class TokenUpdate(Update):
    """`loss_fn` has the arguments and results of OpenRLHF's PolicyLoss, `family` and `clip` are for Table 1."""

    shares = ("policy_loss", "ppo_clip_ratio", "vllm_kl", "is_filter_ratio")

    def __init__(
        self, loss_fn: Callable[..., tuple], family: str, clip: tuple[float, float], *args: Any, **named: Any
    ) -> None:
        super().__init__(*args, **named)
        self.loss_fn, self.family, self.clip = loss_fn, family, clip
        self.means: dict[str, None] = {}  # that `loss_fn` gives

    def policy_loss(self, now: Forward) -> Tensor:
        mask, sampler = now.mask.bool(), now.sampler
        # Select before any arithmetic: what is not the policy's may be nan.
        new, old, advantages = (torch.where(mask, one, 0.0) for one in (now.log_probs, now.old, now.advantages))
        loss, clipped, _, *mismatch = self.loss_fn(
            *(new, old, advantages),
            action_mask=now.mask,
            rollout_log_probs=None if sampler is None else torch.where(mask, sampler, 0.0),
            dp_size=1,
            batch_num_tokens=self.step.action_tokens,
            global_batch_size=max(self.step.rollouts_with_tokens, 1),
        )
        self.meter.add(policy_loss=loss.detach())
        tokens = mask.sum()
        for name, mean in zip(self.shares[1:], (clipped, *mismatch), strict=True):
            if mean is not None:  # of no tokens it is nan
                self.means[name] = None
                self.meter.add(**{name: torch.where(tokens > 0, mean.detach(), 0.0) * tokens})
        return loss

    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        return token_gradients(self.family, now.log_probs, now.old, now.mask, labels, self.clip)

    def metrics(self) -> dict[str, float]:
        means = self.meter.token_means(self.step.trained_tokens, self.means)
        return {"policy_loss": float(self.meter.sums["policy_loss"]), **means}
