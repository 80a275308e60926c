"""On a CPU, make vLLM's seeded samples depend on the request only, not on other requests or on arrival times.

vLLM loads this as a plugin (setup.py). It changes five behaviours of vLLM 0.29 to 0.32:

- Chunked prefill: vLLM cuts a prompt that exceeds the tokens left in a step (of 2,048). Then it rewinds the request's
  generator, which a CPU generator cannot do (`CPU Generator does not use offset`), and the engine dies. Restoring the
  generator is not enough: attention over a part of a prompt sums in another order than over the whole, and the cut
  depends on arrival times. So each prompt is prefilled whole, as vLLM itself does for MLA models.
- Threads: vLLM splits attention over threads by all requests of a step. So attention runs on one thread only.
- Matrix products: rounding depends on whether rows are few or many, with AMX on their exact number. So rows are
  multiplied in blocks of equal size, the last block padded: of prompts larger blocks, which cost less.
- Noise: vLLM draws it for all requests, then again for those with a seed. So it is drawn once; no sample changes.
- Prefix caching: a request reuses what other requests computed of its prompt. So it reuses only the prefill that it
  names (hooks/rollout/read_once.py).

This module can go when vLLM's CPU attention sums in an order that depends on the request only (VLLM_BATCH_INVARIANT
asks for that on GPUs), and its CPU runner restores a generator's state when it drops the drawn number.
"""

import os
from collections.abc import Callable
from typing import Any

WANTED = "REAL_REPEATABLE_ENGINE"
READING = "reading"  # key in a request's `extra_args`; its value names the prefill that the request may reuse
PROMPT_ROWS, ROWS = 128, 32  # in a block of a matrix product: of prompts, and of answers
BLOCK = 32  # tokens in a block of the prefix cache; vLLM's 128 are longer than many prompts


def make_repeatable() -> None:
    """The plugin's entry point: vLLM calls it in each of its processes before it makes an engine."""
    if os.environ.get(WANTED) != "1":
        return
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _read_prompts_whole(type(current_platform))
        _go_on_from_named_readings()
        _attend_on_one_thread()
        _multiply_blocks_of_rows()
        _draw_once()


def _read_prompts_whole(platform: Any) -> None:
    check = platform.check_and_update_config

    def check_and_update_config(vllm_config: Any) -> None:
        check(vllm_config)
        scheduler = vllm_config.scheduler_config
        scheduler.enable_chunked_prefill = False
        scheduler.max_num_batched_tokens = max(
            scheduler.max_num_batched_tokens, vllm_config.model_config.max_model_len
        )
        if vllm_config.cache_config.enable_prefix_caching:
            vllm_config.cache_config.block_size = BLOCK

    platform.check_and_update_config = staticmethod(check_and_update_config)


def _go_on_from_named_readings() -> None:
    from vllm.v1.request import Request

    made = Request.from_engine_core_request

    def from_engine_core_request(request: Any, *rest: Any) -> Request:
        named = getattr(request.sampling_params, "extra_args", None) or {}
        request.cache_salt = named.get(READING, request.request_id)
        return made(request, *rest)

    Request.from_engine_core_request = staticmethod(from_engine_core_request)


def _attend_on_one_thread() -> None:
    """Wrap both operators: the scheduler, which splits a step's attention over threads, and the attention itself."""
    import torch
    from vllm import _custom_ops

    set_threads = torch.set_num_threads  # vLLM's CPU worker replaces it by a function that does nothing

    def on_one_thread(operator: Callable) -> Callable:
        def called(*args: Any, **kwargs: Any) -> Any:
            threads = torch.get_num_threads()
            set_threads(1)
            try:
                return operator(*args, **kwargs)
            finally:
                set_threads(threads)

        return called

    for name in ("cpu_attn_get_scheduler_metadata", "cpu_attention_with_kv_cache"):
        setattr(_custom_ops, name, on_one_thread(getattr(_custom_ops, name)))


def _multiply_blocks_of_rows() -> None:
    import torch
    from vllm.model_executor.layers import utils

    multiply = utils.cpu_unquantized_gemm

    def in_blocks(layer: Any, x: Any, *rest: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        places = _rows_of_prompts(len(rows))
        found = []
        for place, size in zip(places, (PROMPT_ROWS, ROWS), strict=True):
            if place is not None:
                some = torch.nn.functional.pad(rows[place], (0, 0, 0, -len(rows[place]) % size))
                parts = [multiply(layer, block, *rest) for block in some.split(size)]
                found.append((place, parts[0] if len(parts) == 1 else torch.cat(parts)))
        if len(found) == 1:
            products = found[0][1][: len(rows)]
        else:
            products = found[0][1].new_empty(len(rows), found[0][1].shape[1])
            for place, part in found:
                products[place] = part[: len(place)]
        return products.view(*x.shape[:-1], -1)

    utils.cpu_unquantized_gemm = in_blocks


def _rows_of_prompts(count: int) -> tuple[Any, Any]:
    """(which of a step's rows are of prompts, which are not), each None if there are none.

    A request alone decides: prompts are prefilled whole, and then it has one row a step. Outside of the model, in its
    head, every request has one row.
    """
    from vllm.forward_context import get_forward_context, is_forward_context_available

    everything = slice(None)
    metadata = get_forward_context().attn_metadata if is_forward_context_available() else None
    if not isinstance(metadata, dict) or not metadata:
        return None, everything
    one = next(iter(metadata.values()))
    if not hasattr(one, "_rows_of_prompts"):
        lengths = one.query_start_loc.diff()
        prompts = (lengths > 1).repeat_interleave(lengths)
        if bool(prompts.all()):
            places: tuple[Any, Any] = everything, None
        elif not bool(prompts.any()):
            places = None, everything
        else:
            places = prompts.nonzero().squeeze(1), (~prompts).nonzero().squeeze(1)
        one._rows_of_prompts = len(prompts), places
    expected, places = one._rows_of_prompts
    return places if expected == count else (None, everything)


def _draw_once() -> None:
    """vLLM's sampler for CPU draws noise for all requests, then again for those with a seed; `forward_native` once."""
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

    draw = TopKTopPSampler.forward_cpu
    if "fused_gumbel_argmax" in draw.__code__.co_names:
        return  # vLLM from 0.32 draws a number a request, and its noise from that

    def forward_cpu(self: Any, logits: Any, generators: Any, *rest: Any) -> Any:
        return self.forward_native(logits, generators, *rest) if generators else draw(self, logits, generators, *rest)

    TopKTopPSampler.forward_cpu = forward_cpu
