"""`--vllm.enable_prefix_caching` on a CPU: prefill a prompt once for all its answers, and keep samples repeatable.

vLLM lets the first answer's request prefill the whole prompt and the others only its end. There attention sums in
another order, so samples would depend on which request came first. Here a request for one token prefills the prompt,
and each answer's request computes only the last block of the cache again. Each prefill has its own name
(repeatable_engine.py), so no request reuses blocks of another prompt, or of the same prompt under other weights.
"""

import asyncio
from copy import copy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from real_openrlhf.hooks.fixes.repeatable_engine import READING


@dataclass
class Reading:
    """The prefill of one prompt, kept while requests for its answers run."""

    name: str = field(default_factory=lambda: uuid4().hex)
    done: asyncio.Future | None = None
    answers: int = 0


class ReadOnce:
    """Wraps the engine for callers that ask for one answer per call."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.readings: dict[tuple[int, ...], Reading] = {}

    async def generate(self, tokens: list[int], params: Any, multi_modal_data: Any = None) -> Any:
        if multi_modal_data:
            return await self.engine.generate(tokens, params, multi_modal_data=multi_modal_data)
        reading = self.readings.setdefault(tuple(tokens), Reading())
        reading.answers += 1
        try:
            named = copy(params)
            named.extra_args = {**(params.extra_args or {}), READING: reading.name}
            if reading.done is None:
                reading.done = asyncio.ensure_future(self.engine.generate(tokens, _one_token(named)))
            await asyncio.shield(reading.done)
            return await self.engine.generate(tokens, named)
        finally:
            reading.answers -= 1
            if not reading.answers:
                del self.readings[tuple(tokens)]


def _one_token(params: Any) -> Any:
    params = copy(params)
    params.max_tokens, params.min_tokens, params.logprobs = 1, 0, None
    params.seed, params.temperature = None, 0.0  # greedy: needs no random number
    return params
