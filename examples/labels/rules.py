"""Rules for labels: a function of one prompt's rollouts to 1 (positive), 0 (negative) or None (ignored) for each.

    real-openrlhf train --algo real --algo.real.labels examples/labels/rules.py:best_half

A rollout has `reward` (the verifier's score), `tokens`, `truncated`, `prompt` and `answer`. Rollouts without a verdict
or without tokens are ignored before a rule is asked. A rule must label the same rollouts alike each time.
"""

import zlib


def default(rollouts):
    """What happens without a rule: positive above the threshold, else negative."""
    return [int(rollout.reward > 0.5) for rollout in rollouts]


def best_half(rollouts):
    """By rank in the group: positive above the median of the rewards, negative below it, ignored at it."""
    rewards = sorted(rollout.reward for rollout in rollouts)
    median = (rewards[(len(rewards) - 1) // 2] + rewards[len(rewards) // 2]) / 2
    return [None if rollout.reward == median else int(rollout.reward > median) for rollout in rollouts]


def short_and_right(rollouts):
    """By length: a right answer of more than twice the shortest right one is neither pushed up nor down."""
    right = [rollout.tokens for rollout in rollouts if rollout.reward > 0.5]
    longest = 2 * min(right, default=0)
    return [(1 if rollout.tokens <= longest else None) if rollout.reward > 0.5 else 0 for rollout in rollouts]


def random_labels(rollouts):
    """Control: a fair coin for each answer, whatever the verifier says."""
    return [zlib.crc32((rollout.prompt + rollout.answer).encode()) >> 16 & 1 for rollout in rollouts]


def positives_only(rollouts):
    """Control: only right answers train, as in rejection sampling. It needs --algo.real.uniform_groups keep."""
    return [1 if rollout.reward > 0.5 else None for rollout in rollouts]
