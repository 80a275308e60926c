"""Upstream's actor trainer, watched while it trains: the paper's Table 1 for `ppo` and `gspo`."""

from __future__ import annotations

import torch
from deepspeed.accelerator import get_accelerator
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

from real_openrlhf.algorithm.metrics import RATIO_TABLE_SHAPE, ratio_metrics, scored_ratio_table
from real_openrlhf.algorithm.score_table import sum_over_ranks
from real_openrlhf.hooks.run_log import threshold_of


class LoggedActorTrainer(ActorPPOTrainer):
    """Tokens and gradient magnitudes add up on the device; ranks exchange them once a rollout batch."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.actor_loss_fn.register_forward_pre_hook(self.add_ratios, with_kwargs=True)

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        device = get_accelerator().current_device_name()
        self.ratios = torch.zeros(RATIO_TABLE_SHAPE, dtype=torch.float64, device=device)
        status = super().ppo_train(kl_ctl)
        ratios = sum_over_ranks(self.ratios).cpu()
        return {**status, **ratio_metrics(ratios)} if ratios.any() else status  # without scores there is no table

    def training_step(self, experience: Experience, *args, **kwargs) -> dict:
        self.scores = experience.scores
        return super().training_step(experience, *args, **kwargs)

    @torch.no_grad()
    def add_ratios(self, loss_fn, inputs: tuple, named: dict) -> None:
        """Before each call of the loss, whose first two arguments are the new and the old log-probabilities."""
        if self.scores is not None:
            family = "gspo" if self.args.actor.policy_loss_type == "gspo" else "grpo"
            clip = tuple(self.args.actor.eps_clip_low_high)
            new, old = inputs[:2]
            self.ratios += scored_ratio_table(
                family, new, old, named["action_mask"], self.scores, clip, threshold_of(self.args)
            )
