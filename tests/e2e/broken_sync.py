"""An objective of the user's own whose file, loaded by the process that trains, makes it keep its weights."""

from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer

from real_openrlhf.algorithm.formulas import OBJECTIVES

ActorPPOTrainer.broadcast_to_vllm = lambda self: None


def real(scores, groups, settings):
    return OBJECTIVES["real"].loss(scores, groups, settings)
