"""The shipped reward for kill_campaign.py; one prompt in ten is judged by algebra, so that its workers work."""

from real_openrlhf.rewards import math_reward
from real_openrlhf.training.tasks.tiny_model import BOX


def reward_func(queries, prompts, labels):
    (query,), (prompt,), (label,) = queries, prompts, labels
    if not prompt.startswith("1"):
        return math_reward.reward_func(queries, prompts, labels)
    said = query.replace(BOX, rf"{BOX}\sqrt{{{label}}}+")
    return math_reward.reward_func([said], prompts, [rf"{label}+\sqrt{{{label}}}"])
