"""Train with upstream's losses: upstream's loop and training step run over the micro-batches of our plan."""

from copy import copy
from types import SimpleNamespace
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience, make_experience_batch

from real_openrlhf.hooks.actor.logged_trainer import LoggedActorTrainer
from real_openrlhf.hooks.messages.planned_experience import PlanBuffer

TOKEN_MEANS = {"entropy_loss", "ppo_kl", "ppo_clip_ratio"}
NEXT_TO_NOTHING = 1e-30  # token count of a dummy, not 0: upstream divides by the sum over ranks, maybe all dummies


class DealtBuffer(PlanBuffer):
    """The plan as token-budget batches, the only micro-batches that upstream's loop neither shuffles nor regroups."""

    sample_batch_size = 1

    def __init__(self, gradient_accumulation: int) -> None:
        self.gradient_accumulation = gradient_accumulation
        super().__init__()

    def setup_dynamic_batch(self, strategy: object) -> None:
        """Fill the lists of token-budget batches from the plan. Upstream calls this before each training."""
        planned = [
            (step, micro_batch, wave is step.waves[-1])
            for step in self.plan.steps
            for wave in step.waves
            for micro_batch in wave.micro_batches
        ]
        # DeepSpeed divides every loss by gradient_accumulation, not by the plan's micro-batches: `share` cancels that
        share = self.gradient_accumulation
        self.dynamic_indices = [micro_batch.items for _, micro_batch, _ in planned]
        self.dynamic_optimizer_step = [int(last) for _, _, last in planned]
        self.dynamic_batch_num_tokens = [step.action_tokens / share for step, _, _ in planned]
        self.dynamic_global_batch_size = [step.rollouts_with_tokens / share for step, _, _ in planned]
        self.dynamic_sample_loss_scale = [
            len(micro_batch.items) * share / max(sum(len(b.items) for w in step.waves for b in w.micro_batches), 1)
            for step, micro_batch, _ in planned
        ]

    def __len__(self) -> int:
        return len(self.dynamic_indices)

    def __getitem__(self, index: int) -> list[Experience]:
        items = [self.items[item] for item in self.dynamic_indices[index]]
        if items:
            return items
        # A rank without rollouts needs a forward, for ZeRO-3's gathers, and a backward: it gets a fully masked dummy
        dummy = copy(self.items[0])
        dummy.action_mask = torch.zeros_like(dummy.action_mask)
        return [dummy]

    def collate_fn(self, batch: list[list[Experience]]) -> Experience:
        return make_experience_batch(batch[0])


class DealtActorTrainer(LoggedActorTrainer):
    """Upstream's trainer, given our plan in place of its token-budget batches."""

    args: SimpleNamespace

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.replay_buffer = DealtBuffer(self.actor.model.gradient_accumulation_steps())
        self.strategy.use_dynamic_batch = True  # moving_average then updates at each call, one per optimizer step
        mine = copy(self.strategy.args)
        mine.train = copy(mine.train)
        mine.train.dynamic_batch_enable = True
        self.args = mine
        self.max_epochs = 1  # the plan has the micro-batches of all epochs

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        plan = self.replay_buffer.plan
        status = super().ppo_train(kl_ctl)
        if not any(step.trained_tokens for step in plan.steps):  # the mean over zero tokens is undefined
            status = {name: value for name, value in status.items() if name not in TOKEN_MEANS}
        return {**status, **{name: value for name, value in plan.metrics.items() if not name.startswith("real/")}}

    def training_step(
        self, experience: Experience, kl_ctl: float, step: int, loss_batch_info: dict | None = None
    ) -> dict:
        last = bool(self.replay_buffer.dynamic_optimizer_step[step])
        self.actor.model.set_gradient_accumulation_boundary(last)
        status = super().training_step(experience, kl_ctl, step, loss_batch_info)
        if not self.replay_buffer.dynamic_indices[step]:  # a dummy: its means are nan and must not count
            status["metrics"] = {
                name: torch.zeros(()) if status["weights"][name] else value
                for name, value in status["metrics"].items()
            }
            status["num_samples"] = status["num_action_tokens"] = NEXT_TO_NOTHING
        else:
            self.make_own_means(status["metrics"], experience.action_mask, step)
        return status

    def make_own_means(self, metrics: dict, mask: torch.Tensor, step: int) -> None:
        """Upstream logs a micro-batch's share of the update's means; put the means over its own tokens there."""
        buffer, ranks = self.replay_buffer, self.strategy.world_size
        of_tokens = buffer.dynamic_batch_num_tokens[step] / (mask.sum().clamp(min=1) * ranks)
        of_rollouts = buffer.dynamic_global_batch_size[step] / (mask.any(-1).sum().clamp(min=1) * ranks)
        shares = {
            "policy_loss": of_tokens if self.actor_loss_fn.token_level_loss else of_rollouts,
            "entropy_loss": of_tokens,
            "kl": of_tokens if self.args.algo.kl.use_loss else 1.0,
        }
        for name in shares.keys() & metrics.keys():
            metrics[name] = metrics[name] * shares[name]
