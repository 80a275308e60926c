"""vLLM gets sampling parameters with each prompt, and the tokenizer once an engine."""

import asyncio
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ray

from real_openrlhf.hooks.engine import engine_process
from real_openrlhf.hooks.fixes.repeatable_engine import WANTED
from real_openrlhf.hooks.rollout.read_once import ReadOnce
from real_openrlhf.hooks.rollout.reward_calls import Fault, RewardCalls, checked
from real_openrlhf.hooks.rollout.sample_seeds import SampleSeeds, seeded_by_index
from real_openrlhf.machine.signs_of_life import enter, offer_stacks

AGENT = "agent"  # in a request's `extra_args`: the agent's file, and the run that asks

__all__ = ["Requests", "executor", "held", "seeded_by_index"]


@dataclass(frozen=True)
class TokenizerRef:
    """Stands for a tokenizer, which takes 0.4 s to unpickle with a vocabulary of 152,000 words."""

    ref: ray.ObjectRef


class Requests:
    """The sample generator's end."""

    def __init__(self, args: SimpleNamespace, tokenizer: Any) -> None:
        self.seeds = SampleSeeds(args.train.seed) if args.rollout.seeded else None
        self.run_dir: str | None = args.train.run_dir
        self.log_probs = args.rollout.mismatch != "off"
        self.agent: str | None = args.rollout.agent
        # an agent reads the engine's text; else tokens are all that is used
        self.text = bool(self.agent or args.train.agent_func_path)
        self.tokenizer = TokenizerRef(ray.put(tokenizer)) if ray.is_initialized() else tokenizer

    def parameters(self, sampling_params: Any, prompt: str) -> Any:
        """Upstream's, with the log-probability of each sampled token and of no other, and the prompt's seed.

        A response is answered once, whole: after every token it would be for all requests a copy of all that is there.
        """
        from vllm.sampling_params import RequestOutputKind

        enter(self.run_dir, "generation and rewards")
        sampling_params.output_kind = RequestOutputKind.FINAL_ONLY
        sampling_params.detokenize = self.text
        if self.agent:  # said with each request: an engine outlives its run where runs share it
            sampling_params.extra_args = {AGENT: (self.agent, self.run_dir)}
        if self.log_probs and sampling_params.logprobs is None:
            sampling_params.logprobs = 0
            sampling_params.flat_logprobs = True  # lists of numbers, not two objects a token
        return self.seeds.seeded(sampling_params, prompt) if self.seeds else sampling_params


_loading: dict[ray.ObjectRef, asyncio.Future] = {}  # of this engine's process: the tokenizer of its latest run


async def held(tokenizer: Any) -> Any:
    """The engine's end: the tokenizer itself, however many requests ask for it at once."""
    if not isinstance(tokenizer, TokenizerRef):
        return tokenizer
    if tokenizer.ref not in _loading:
        _loading.clear()
        _loading[tokenizer.ref] = asyncio.ensure_future(tokenizer.ref)
    return await _loading[tokenizer.ref]


def executor(url: str | list[str] | None) -> Any:
    """Upstream's executor, but a reward function's fault costs only the one response that it graded."""
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    offer_stacks()
    os.environ.update(engine_process.ENVIRONMENT)  # this process is about to start an engine

    class Executor(SingleTurnAgentExecutor):
        def __init__(self) -> None:
            super().__init__(url)
            self.calls = RewardCalls(self.reward_func)
            self.reader: ReadOnce | None = None

        async def execute(self, prompt: str, sampling_params: Any, *, llm_engine: Any, **named: Any) -> dict:
            if agent := (sampling_params.extra_args or {}).get(AGENT):
                from real_openrlhf.hooks.rollout.agents import play

                path, run = agent
                return await play(path, run, prompt, sampling_params, llm_engine=llm_engine, **named)
            engine = self.through(llm_engine)
            return await super().execute(prompt, sampling_params=sampling_params, llm_engine=engine, **named)

        def through(self, engine: Any) -> Any:
            if os.environ.get(WANTED) != "1" or not engine.kwargs["enable_prefix_caching"]:
                return engine
            self.reader = self.reader or ReadOnce(engine)
            return self.reader

        async def _fetch_rewards_via_func(self, queries: list, prompts: list, labels: list) -> list[dict]:
            each = zip(queries, prompts, labels, strict=True)
            return list(await asyncio.gather(*(self.calls.reward(*one) for one in each)))

        async def _fetch_rewards_via_http(self, queries: list, prompts: list, labels: list) -> list[dict]:
            try:
                return [checked(one) for one in await super()._fetch_rewards_via_http(queries, prompts, labels)]
            except Fault as fault:
                return [self.calls.failed(fault, prompts[0])]
            except RuntimeError as error:  # after upstream's tries
                return [self.calls.failed(Fault("no_answer", str(error)), prompts[0])]

    return Executor()
