"""Requests to vLLM: each prompt is sent with its sampling parameters, the tokenizer once per engine.

`engine_arguments` prepares the process that makes an engine."""

import asyncio
import os
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ray

from real_openrlhf.base.run_files import enter
from real_openrlhf.hooks.engine import plugin
from real_openrlhf.hooks.engine.rewards import executor
from real_openrlhf.hooks.prompt_stream import SampleSeeds, seeded_each
from real_openrlhf.machine import nvidia

__all__ = ["Requests", "agent_executor", "engine_arguments", "executor", "held", "prompt_of", "seeded_each"]


@dataclass(frozen=True)
class TokenizerRef:
    """Reference to a tokenizer in Ray's object store: unpickling one with 152,000 tokens takes 0.4 s."""

    ref: ray.ObjectRef


class Requests:
    """Used by the sample generator, which sends the requests."""

    def __init__(self, args: SimpleNamespace, tokenizer: Any) -> None:
        self.seeds = SampleSeeds(args.train.seed) if args.rollout.seeded else None
        self.run_dir: str | None = args.train.run_dir
        self.whole_groups = args.derived.whole_groups
        self.log_probs = args.rollout.mismatch != "off"
        self.text = bool(args.train.agent_func_path)  # read by an agent alone
        self.tokenizer = TokenizerRef(ray.put(tokenizer)) if ray.is_initialized() else tokenizer

    def parameters(self, sampling_params: Any, prompt: str) -> Any:
        """Upstream's parameters, with log-probabilities of the sampled tokens only, and with the prompt's seed.

        vLLM returns a response once, when it is complete. By default it copies all tokens so far after each token.
        """
        from vllm.sampling_params import RequestOutputKind

        enter(self.run_dir, "generation and rewards")
        sampling_params.output_kind = RequestOutputKind.FINAL_ONLY
        sampling_params.detokenize = self.text
        if self.whole_groups:  # OpenRLHF's 1 bars the end from the first token, and renormalizes the others
            sampling_params.min_tokens = 0
        if self.log_probs and sampling_params.logprobs is None:
            sampling_params.logprobs = 0
            sampling_params.flat_logprobs = True  # lists of numbers, not two objects per token
        return self.seeds.seeded(sampling_params, prompt) if self.seeds else sampling_params


_loading: dict[ray.ObjectRef, asyncio.Future] = {}  # in the engine's process: the latest run's tokenizer


async def held(tokenizer: Any) -> Any:
    """In the engine's process: the tokenizer itself, fetched once even if many requests ask at the same time."""
    if not isinstance(tokenizer, TokenizerRef):
        return tokenizer
    if tokenizer.ref not in _loading:
        _loading.clear()
        _loading[tokenizer.ref] = asyncio.ensure_future(tokenizer.ref)
    return await _loading[tokenizer.ref]


def engine_arguments(asked: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the engine that this actor makes next. The engine's process inherits this one's variables."""
    os.environ.update(plugin.ENVIRONMENT)
    if os.environ.get("RAY_ADDRESS") == "local":
        # With several GPUs the engine's process joins Ray. For "local" it would start a second one, without our GPUs.
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    return nvidia.engine_arguments(trains=True) | asked


def agent_executor(file: str) -> Any:
    """An agent's executor, as the engine's actor makes it."""
    from openrlhf.trainer.ray.vllm_engine import _load_agent_executor

    return _load_agent_executor(file)


def prompt_of(row: dict, data: SimpleNamespace, tokenizer: Any) -> tuple[str, Any]:
    """A row's prompt and label, as the data set makes them; `data`: the flags of that name."""
    from openrlhf.datasets.prompts_dataset import preprocess_data

    template = tokenizer.apply_chat_template if data.apply_chat_template else None
    return preprocess_data(row, data.input_template, data.input_key, data.label_key, template)
