"""Upstream's actor trainer with more in its log: the paper's Table 1, clipped updates, and the gap to vLLM.

Its loss is upstream's own, or CISPO or REINFORCE, which upstream lacks.
"""

from typing import Any

import torch
from deepspeed.accelerator import get_accelerator
from openrlhf.models.loss import PolicyLoss, aggregate_loss
from openrlhf.models.utils import masked_mean
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

from real_openrlhf.algorithm.meter import Meter
from real_openrlhf.algorithm.metrics import labels_of_scores, norm_metrics, ratio_table, token_gradients
from real_openrlhf.algorithm.token_weights import TOKEN_WEIGHTS, clipped, weighted_loss
from real_openrlhf.hooks.actor.mismatch import Mismatch
from real_openrlhf.hooks.fixes.deepspeed_optimizers import accumulate_as_flagged
from real_openrlhf.hooks.messages.settings import threshold_of


class LoggedActorTrainer(ActorPPOTrainer):
    """Its meter sums over all updates of a rollout batch; ranks exchange the sums once per batch."""

    actor_loss_fn: torch.nn.Module

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        accumulate_as_flagged(self.actor.model)
        self.actor_loss_fn = loss_of(self.actor_loss_fn)
        self.actor_loss_fn.register_forward_pre_hook(self.watch, with_kwargs=True)
        self.mismatch = Mismatch(self.args, self.strategy.print)

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        self.strategy.enter("update")
        if self.args.rollout.seeded_order:
            self.strategy.reseed_dropout(self.actor.model.global_steps)
        first, device = self.replay_buffer.items[0], get_accelerator().current_device_name()
        self.meter = Meter(device, scored=first.scores is not None, sampled=first.rollout_log_probs is not None)
        self.norms: list[float] = []
        status = super().ppo_train(kl_ctl)
        self.strategy.enter("handing over weights")
        self.meter.gather()
        status |= self.meter.metrics()
        self.mismatch.judge(status, self.actor.model.global_steps)
        return status | norm_metrics(self.norms, self.args.actor.max_norm)

    def training_step(self, experience: Experience, *args, **kwargs) -> dict:
        self.scores = experience.scores
        updates = self.actor.model.global_steps
        status = super().training_step(experience, *args, **kwargs)
        if self.actor.model.global_steps > updates:  # upstream reports a norm also if it only accumulates
            self.norms.append(status["metrics"]["actor_grad_norm"])
        return status

    @torch.no_grad()
    def watch(self, loss_fn, inputs: tuple, named: dict) -> None:
        """Pre-hook of the loss: give its new and old log-probabilities, its first two arguments, to the meter."""
        new, old, *_ = inputs
        columns = (new, old, named["action_mask"])
        self.meter.see(*columns, named["rollout_log_probs"])
        if self.scores is not None:
            actor = self.args.actor
            family = "grpo" if actor.policy_loss_type == "ppo" else actor.policy_loss_type
            labels = labels_of_scores(self.scores, threshold_of(self.args))
            gradients = token_gradients(family, *columns, labels, tuple(actor.eps_clip_low_high))
            self.meter.add(ratios=ratio_table(*columns, labels, gradients))


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
    """CISPO and REINFORCE. `rollout_log_probs` is unused: the flags refuse upstream's sampler correction with them.

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
        share = masked_mean(clipped(self.policy_loss_type, log_ratio, clip, advantages).float(), action_mask, dim=None)
        return loss, share, masked_mean(-log_ratio, action_mask, dim=None), None, None
