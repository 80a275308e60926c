"""Rewards of the steps that a rehearsal trains: every second response gets the verdict of a right one.

A random model is never right, so every group would be uniform and nothing would train.
"""

import asyncio
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from real_openrlhf.base.user_files import load, reward_function
from same_answer.extract import THINKING, golds_of

EPISODE = ("observation_tokens", "action_ranges", "reward", "scores", "truncated")


Right = Callable[[str, Any], str]  # a right response to a prompt with this label


def formatted(form: str, prompt: str, label: Any) -> str:
    return form.format(next(iter(golds_of(label)), str(label)))


def right_of(reward: list[str]) -> Right | None:
    """`right_response` of the reward's file, if it has one."""
    right: Any = load(f"{reward[0]}:right_response") if reward[0].endswith(".py") else None
    return right


def response(prompt: str, text: str) -> str:
    """The text as a response to the prompt, which may end inside the thinking."""
    closing = next((end for start, end in THINKING.items() if prompt.rstrip().endswith(start)), "")
    return f"{closing}\n" * bool(closing) + text


def chosen(text: str) -> bool:
    return zlib.crc32(text.encode()) % 2 == 1


def planted(reward: list[str], form: str | None, end: str) -> Callable:
    """The user's reward, asked about the gold in this form instead; without a form that is right its verdict is 1."""
    right = right_of(reward) or partial(formatted, str(form))
    if reward[0].endswith(".py"):
        ask = reward_function(reward[0])
    else:
        from real_openrlhf.hooks.engine.rewards import executor

        def ask(queries: list, prompts: list, labels: list) -> dict:
            return asyncio.run(executor(reward)._fetch_rewards_via_http(queries, prompts, labels))[0]

    def reward_func(queries: list[str], prompts: list[str], labels: list) -> dict:
        if not chosen(queries[0]):
            return ask(queries, prompts, labels)
        if form is None:
            return {**ask(queries, prompts, labels), "rewards": 1.0, "scores": 1.0}
        gold = response(prompts[0], right(prompts[0], labels[0]))
        return ask([prompts[0] + gold + end], prompts, labels)

    return reward_func


def planted_agent(file: str, compared: bool) -> Any:
    """The user's agent, checked, with a right verdict for every second episode."""
    agent: Any = load(f"{file}:AgentExecutor")

    class Planted(agent):
        async def execute(self, *words: Any, **named: Any) -> dict:
            result = await super().execute(*words, **named)
            if fault := episode_fault(result, compared):
                raise ValueError(f"{file}: {fault}")
            right = chosen(str(result["observation_tokens"]))
            return {**result, "reward": 1.0, "scores": 1.0} if right else result

    return Planted


def episode_fault(result: dict, compared: bool) -> str:
    """`compared`: the run compares the log-probabilities of vLLM with the policy's."""
    if missing := [key for key in EPISODE if result.get(key) is None]:
        return f"an episode lacks {', '.join(missing)}"
    tokens, log_probs = len(result["observation_tokens"]), result.get("rollout_log_probs")
    if compared and log_probs is None:
        return "an episode has no rollout_log_probs: that vLLM and the policy differ is not seen, nor corrected"
    if log_probs is not None and len(log_probs) != tokens:
        return f"an episode has {len(log_probs)} rollout_log_probs for {tokens} tokens"
    if not all(0 < start < end <= tokens for start, end in result["action_ranges"]):
        return f"action_ranges {result['action_ranges']} do not lie in the {tokens} tokens of their episode"
    return ""
