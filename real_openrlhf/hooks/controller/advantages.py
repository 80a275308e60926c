"""Advantages for OpenRLHF's losses, as OpenRLHF computes them, but of the graded responses with tokens.

OpenRLHF gives an ungraded response the reward 0, which trains it as an incorrect one. Here such a response has
advantage 0 and is in no mean, as it has weight 0 in REAL. If all are graded, the numbers are OpenRLHF's, but for
a group of equal rewards: its advantages are 0. OpenRLHF's float32 mean of eight rewards of 0.1 is not 0.1, and the
deviation by which it divides is then as small as that difference.
"""

from types import SimpleNamespace

import torch
from openrlhf.models.utils import compute_reward
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from torch import Tensor

from real_openrlhf.hooks.controller.groups import groups_of


def add_advantages(maker: RemoteExperienceMaker, samples: list[Experience], known: Tensor) -> None:
    """Set advantages and their logged numbers; `known` says which responses are graded and have tokens."""
    args = maker.args
    estimator, size = args.algo.advantage.estimator, len(groups_of(samples, args)[0])
    shaped, spread = shaped_rewards(estimator, torch.cat([sample.rewards for sample in samples]).float(), known, size)
    for position, sample in enumerate(samples):
        mask, row = sample.action_mask, slice(position, position + 1)
        no_kl, bounds = torch.zeros(mask.shape), args.reward.clip_range
        reward = compute_reward(shaped[row], 0.0, no_kl, action_mask=mask, reward_clip_range=bounds)
        # each token's sum from it on: OpenRLHF loops over tokens, of which a step has eight million
        returns = (mask * reward).flip(-1).cumsum(-1).flip(-1)
        sample.advantages = returns.masked_fill(~known[row, None], 0.0)
        sample.info |= {"return": reward.sum(-1).masked_fill(~known[row], 0.0), "group_reward_std": spread[row]}
    if estimator == "reinforce_baseline":
        whiten([sample for sample, has in zip(samples, known.tolist(), strict=True) if has], args.algo.advantage)


def shaped_rewards(estimator: str, rewards: Tensor, known: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(N,) rewards less their baseline, 0 for unknown ones and in groups of equal rewards; each group's deviation."""
    rows, known = rewards.view(-1, size), known.view(-1, size)
    shaped, spread, counts = torch.zeros_like(rows), torch.zeros_like(rows), known.sum(-1, keepdim=True)
    for count in counts.unique().tolist():
        if count < 2:  # nothing to compare
            continue
        chosen = known & (counts == count)
        own = rows[chosen].view(-1, count)
        deviation = own.std(-1, keepdim=True)
        if estimator == "rloo":
            centred = own - (own.sum(-1, keepdim=True) - own) / (count - 1)
        else:
            centred = own - own.mean(-1, keepdim=True)
        if estimator == "group_norm":
            centred = centred / (deviation + 1e-9)
        equal = own.amax(-1, keepdim=True) == own.amin(-1, keepdim=True)
        shaped[chosen] = centred.masked_fill(equal, 0.0).flatten()
        spread[chosen] = deviation.expand_as(own).flatten()
    return shaped.flatten(), spread.flatten()


def whiten(samples: list[Experience], advantage: SimpleNamespace) -> None:
    """Centre advantages over all tokens of these rollouts, and divide them by their deviation unless it is off."""
    tokens = torch.cat([sample.advantages[sample.action_mask.bool()] for sample in samples] or [torch.zeros(0)])
    if not len(tokens):
        return
    mean, scale = tokens.mean(), torch.ones(())
    if not advantage.no_std_norm:
        scale = (tokens - mean).pow(2).mean().clamp(min=1e-8).rsqrt()
    for sample in samples:
        sample.advantages = (sample.advantages - mean) * scale
