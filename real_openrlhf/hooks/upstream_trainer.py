"""OpenRLHF's actor trainer as every run has it."""

import ray
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer


class EngineStartTrainer(ActorPPOTrainer):
    """OpenRLHF's actor trainer, which waits for its engines before it opens the group in which they receive weights.

    An engine that failed at its start never joins: upstream waits for half an hour, without a word. And a resumed run
    draws the dropout, and upstream's trainer the order of rollouts, that it would have drawn unbroken.
    """

    def _init_vllm_sync_group(self, backend: str) -> None:
        ray.get([engine.__ray_ready__.remote() for engine in self.vllm_engines])  # raises the reason of a failed one
        super()._init_vllm_sync_group(backend)

    def ppo_train(self, kl_ctl: float) -> dict[str, float]:
        if self.args.rollout.seeded_order or self.args.derived.whole_groups:  # else as released
            self.strategy.reseed(self.actor.model.global_steps)
        return self.train_batch(kl_ctl)

    def train_batch(self, kl_ctl: float) -> dict[str, float]:
        return super().ppo_train(kl_ctl)
