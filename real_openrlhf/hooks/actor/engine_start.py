"""OpenRLHF's actor trainer, with what every run needs of it.

It waits for its engines before it opens the group in which they receive weights. Upstream opens the group first. An
engine that failed at its start never joins, so the policy waits for torch's limit of half an hour, without a word.

A resumed run draws the dropout, and upstream's trainer the order of rollouts, that it would have drawn unbroken.
"""

import ray
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer


class EngineStartTrainer(ActorPPOTrainer):
    def _init_vllm_sync_group(self, backend: str) -> None:
        ray.get([engine.__ray_ready__.remote() for engine in self.vllm_engines])  # raises the reason of a failed one
        super()._init_vllm_sync_group(backend)

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        if self.args.rollout.seeded_order or self.args.train.deal == "groups":  # else as released
            self.strategy.reseed(self.actor.model.global_steps)
        return self.train_batch(kl_ctl)

    def train_batch(self, kl_ctl: float) -> dict[str, float]:
        return super().ppo_train(kl_ctl)
