"""The user's own agent: several turns are one rollout. OpenRLHF's executor plays them, in a rollout actor.

This module gives each turn a seed and the run's length limit, and checks the environment's results.
"""

from collections.abc import Callable
from copy import copy
from functools import cache
from typing import Any

import torch
from openrlhf.utils.agent import AgentExecutorBase

from real_openrlhf.base.user_files import load, raised
from real_openrlhf.hooks.rollout.prompt_stream import seeded_by_turn
from real_openrlhf.hooks.rollout.reward_calls import checked, logged, number

CLASS = "AgentExecutor"
TURNS, UNFINISHED = "agent/turns", "agent/unfinished"  # in extra_logs, so that metrics.jsonl has their means


class AgentError(RuntimeError):
    """An agent raised an exception, or its result is no valid trajectory."""


def find_agent(path: str) -> Callable[[], AgentExecutorBase]:
    """The file's executor class; raises a ValueError of one line if there is none."""
    executor = load(f"{path}:{CLASS}")
    if not isinstance(executor, type) or not issubclass(executor, AgentExecutorBase):
        raise ValueError(
            f"it defines no executor {CLASS}. Derive one from "
            "openrlhf.utils.agent.MultiTurnAgentExecutor, as examples/agents/guess_number.py does"
        )
    return executor


@cache
def _executor(path: str, run: str | None) -> AgentExecutorBase:
    """One executor per run, even if the agent's file changes meanwhile."""
    executor = find_agent(path)()
    if hasattr(executor, "agent_instance_cls"):
        executor.agent_instance_cls = _with_checked_steps(executor.agent_instance_cls)
    return executor


def _with_checked_steps(agent: type) -> type:
    class Checked(agent):
        async def step(self, states: dict, **named: Any) -> dict:
            result = await super().step(states, **named)
            checked_result = checked(result)
            if mine := result.get("sampling_params"):  # upstream reads `logprobs` of these
                mine.logprobs = states["sampling_params"].logprobs
            if result.get("scores") is None:
                del checked_result["scores"]  # upstream then takes the sum of the rewards as the trajectory's score
            checked_result["rewards"] = torch.tensor(
                checked_result["rewards"], dtype=torch.float64
            )  # upstream calls item() on it
            checked_result["extra_logs"][UNFINISHED] = float(not result["done"])
            return {name: value for name, value in result.items() if name != "scores"} | checked_result

    return Checked


class Turns:
    """Wraps the engine for an agent: each turn gets the run's length limit and a seed of its own."""

    def __init__(self, engine: Any, params: Any) -> None:
        self.engine, self.params = engine, params
        self.count = 0
        self.failure: Exception | None = None  # an exception of the engine, not of the agent

    async def generate(self, tokens: list[int], params: Any, **named: Any) -> Any:
        params = seeded_by_turn(copy(params), self.params.seed, self.count)
        limits = [limit for limit in (params.max_tokens, self.params.max_tokens) if limit is not None]
        params.max_tokens = min(limits, default=None)
        params.min_tokens = 0  # lets a turn end at once; a minimum would change the first token's distribution
        self.count += 1
        try:
            return await self.engine.generate(tokens, params, **named)
        except Exception as error:
            self.failure = error
            raise


async def play(
    path: str, run: str | None, prompt: str, sampling_params: Any, *, llm_engine: Any, **named: Any
) -> dict:
    """Play one trajectory; the result has the form of upstream's single turn."""
    params = copy(sampling_params)
    params.extra_args = None
    turns = Turns(llm_engine, params)
    try:
        executor = _executor(path, run)
        # a copy: upstream writes each turn's budget into it, and all rollouts of a prompt may share one
        request = {"prompt": prompt, "sampling_params": copy(params), "llm_engine": turns, **named}
        response = await executor.execute(**request)
        logs = dict(logged(response.get("extra_logs") or {}))
        given = {name: number(name, response[name]) for name in ("reward", "scores") if response.get(name) is not None}
        # a rollout with no tokens left for its next turn is truncated
        cut = bool(response.get("truncated")) or logs.get(UNFINISHED, 0.0) > 0
        logs[TURNS] = float(len(response["action_ranges"]))
        return response | given | {"truncated": cut, "extra_logs": logs}
    except (Exception, SystemExit) as error:
        if error is turns.failure:
            raise
        raise AgentError(
            f"the agent {path}: {raised(error, path)[:500]}, after turn {turns.count} of prompt {prompt[:80]!r}. "
            "Mend it; an environment that cannot judge catches its exception and returns scores nan"
        ) from error
