"""REAL as an advantage estimator of verl or SkyRL, exact for one optimizer step per rollout batch.

docs/change/elsewhere.md has the settings.
"""

import torch

from real_openrlhf import group_weights, real_policy_loss

try:
    from verl.trainer.ppo.core_algos import register_adv_est as register
except ImportError:
    from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator as register


OBJECTIVE = "real"  # rewards are 1 or 0. Another: a built-in name, or "/path/to/file.py:NAME"


@register("real")
def real(token_level_rewards, response_mask, index, **kwargs):
    new = torch.zeros(response_mask.shape, requires_grad=True)
    rewards = token_level_rewards.sum(-1)
    group_weights(rewards, list(index), objective=OBJECTIVE)  # refuses a loss whose first weights rewards do not tell
    loss, _ = real_policy_loss(new, new.detach(), response_mask, rewards, list(index), objective=OBJECTIVE)
    (slope,) = torch.autograd.grad(loss, new)
    advantages = -len(index) * slope  # the trainer's loss is a mean over rollouts
    return advantages, advantages
