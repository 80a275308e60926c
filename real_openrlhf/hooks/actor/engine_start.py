"""OpenRLHF's actor trainer waits for its engines before it opens the group in which they receive weights.

Upstream opens the group first. An engine that failed at its start never joins, so the policy waits for torch's limit
of half an hour, without a word. Remove this file when upstream waits for both.
"""

import ray
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer


class EngineStartTrainer(ActorPPOTrainer):
    def _init_vllm_sync_group(self, backend: str) -> None:
        ray.get([engine.__ray_ready__.remote() for engine in self.vllm_engines])  # raises the reason of a failed one
        super()._init_vllm_sync_group(backend)
