"""The tiny task's reward for kill_campaign.py; one prompt in ten is judged by algebra, so that its workers work."""

from real_openrlhf.rewards import math_reward, tiny_reward


def reward_func(queries, prompts, labels):
    (query,), (prompt,), (label,) = queries, prompts, labels
    own = tiny_reward.reward_func(queries, prompts, labels)
    if not prompt.startswith("1"):
        return own
    said = query.removeprefix(prompt).removesuffix("<eos>").lstrip(".")
    answer, gold = rf"\sqrt{{{label}}}+{said}", rf"{label}+\sqrt{{{label}}}"
    judged = math_reward.reward_func([prompt + rf"\boxed{{{answer}}}"], prompts, [gold])
    return own | {name: judged[name] for name in ("rewards", "scores")}
