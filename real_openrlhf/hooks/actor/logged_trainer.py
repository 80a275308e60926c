"""Upstream's actor trainer, watched while it trains: the paper's Table 1, clipped updates, and the sampler.

Its loss is upstream's own, or one that upstream lacks (weighted_policy_loss.py).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

from real_openrlhf.algorithm.metrics import (
    RATIO_TABLE_SHAPE,
    clipped_share,
    largest_log_ratio,
    ratio_metrics,
    scored_ratio_table,
)
from real_openrlhf.algorithm.mismatch import gaps, no_gaps
from real_openrlhf.algorithm.score_table import sum_over_ranks
from real_openrlhf.hooks.actor.mismatch import Mismatch
from real_openrlhf.hooks.actor.weighted_policy_loss import loss_of
from real_openrlhf.hooks.controller.run_log import threshold_of
from real_openrlhf.hooks.fixes.dropout_seeds import reseed
from real_openrlhf.hooks.fixes.gradient_format import add_up_as_told


class LoggedActorTrainer(ActorPPOTrainer):
    """Tokens and gradient magnitudes add up on the device; ranks exchange them once a rollout batch."""

    actor_loss_fn: torch.nn.Module

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        add_up_as_told(self.actor.model)
        self.actor_loss_fn = loss_of(self.actor_loss_fn)
        self.actor_loss_fn.register_forward_pre_hook(self.watch, with_kwargs=True)
        self.mismatch = Mismatch(self.args, self.strategy.print)

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        self.strategy.enter("update")
        if self.args.rollout.seeded_order:
            reseed(self.args.train.seed, self.actor.model.global_steps, torch.distributed.get_rank())
        device = get_accelerator().current_device_name()
        self.ratios = torch.zeros(RATIO_TABLE_SHAPE, dtype=torch.float64, device=device)
        self.gap_sums, self.gap_maxima = no_gaps(device)
        self.norms: list[float] = []
        self.furthest = self.gap_maxima.new_zeros(())
        status = super().ppo_train(kl_ctl)
        self.strategy.enter("handing over weights")
        ratios, gap_sums = sum_over_ranks(self.ratios).cpu(), sum_over_ranks(self.gap_sums).cpu()
        dist.all_reduce(self.gap_maxima, op=dist.ReduceOp.MAX)
        if ratios.any():  # without scores there is no table
            status |= ratio_metrics(ratios)
        if gap_sums.any():  # nor a gap without a sampler's log-probabilities
            status |= self.mismatch.metrics(gap_sums, self.gap_maxima.cpu(), self.actor.model.global_steps)
        if self.args.train.run_dir:
            dist.all_reduce(self.furthest, op=dist.ReduceOp.MAX)
            status["update/ratio_max"] = float(self.furthest.exp())
            status["update/clipped_share"] = clipped_share(self.norms, self.args.actor.max_norm)
        return status

    def training_step(self, experience: Experience, *args, **kwargs) -> dict:
        self.scores = experience.scores
        updates = self.actor.model.global_steps
        status = super().training_step(experience, *args, **kwargs)
        if self.actor.model.global_steps > updates:  # upstream also reports a norm where it only accumulates
            self.norms.append(status["metrics"]["actor_grad_norm"])
        return status

    @torch.no_grad()
    def watch(self, loss_fn, inputs: tuple, named: dict) -> None:
        """Before each call of the loss, whose first two arguments are the new and the old log-probabilities."""
        new, old, mask, sampler = *inputs[:2], named["action_mask"], named["rollout_log_probs"]
        self.furthest = torch.maximum(self.furthest, largest_log_ratio(new, old, mask))
        if self.scores is not None:
            loss = self.args.actor.policy_loss_type
            family = "grpo" if loss == "ppo" else loss
            clip = tuple(self.args.actor.eps_clip_low_high)
            self.ratios += scored_ratio_table(family, new, old, mask, self.scores, clip, threshold_of(self.args))
        if sampler is not None:
            sums, maxima = gaps(old, sampler, mask)
            self.gap_sums += sums
            self.gap_maxima = torch.maximum(self.gap_maxima, maxima)
