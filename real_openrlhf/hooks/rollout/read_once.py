"""`--vllm.enable_prefix_caching` on a CPU: a prompt is read once for its answers, and seeded ones stay repeatable.

vLLM lets the first of them read the whole prompt and the others only its end, whose attention then adds up in another
order: samples would depend on who came first. So a request for one token reads the prompt for all of them, and each
reads the last block again. What was read goes by a name of its own (hooks/fixes/repeatable_engine.py sees to it): no
request finds what another prompt, or the same one under other weights, has left.
"""

import asyncio
from copy import copy
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from real_openrlhf.hooks.fixes.repeatable_engine import READING


@dataclass
class Reading:
    """Of one prompt, while there are answers to it."""

    name: str = field(default_factory=lambda: uuid4().hex)
    done: asyncio.Future | None = None
    answers: int = 0


class ReadOnce:
    """The engine, for those who ask for one answer each."""

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
    params.seed, params.temperature = None, 0.0  # the likeliest: its draw costs nothing
    return params
