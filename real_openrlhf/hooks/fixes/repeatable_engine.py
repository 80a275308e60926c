"""On a CPU, what vLLM samples with a seed is a function of the request: not of what it serves beside it, nor of when.

vLLM loads this as a plugin (setup.py). Four habits of vLLM 0.29 to 0.32 stand against it:

- It cuts a prompt that is longer than what a step has left of its 2,048 tokens. Then it takes back the request's
  random number, which the generator of a CPU cannot (`CPU Generator does not use offset`): the engine dies. Nor is
  restoring the generator enough: attention over a part of a prompt adds up in another order than over the whole, and
  the cut depends on when the requests arrived. So prompts are read whole, as vLLM itself reads those of MLA models.
- It shares attention among threads by all that is in the step. So attention has one thread, matrix products have all.
- It multiplies few rows in another way than many, and with AMX each number of them. So all are multiplied in blocks of
  as many rows, the last one filled up; that cost nothing that could be measured.
- A request goes on from what others have read of its prompt. So it does only where it names the reading
  (hooks/rollout/read_once.py).

It can go when vLLM's CPU attention adds up in an order that is the request's own (as VLLM_BATCH_INVARIANT asks on
GPUs), and its CPU runner keeps the state of a generator whose number it drops.
"""

import os
from collections.abc import Callable
from typing import Any

WANTED = "REAL_REPEATABLE_ENGINE"
READING = "reading"  # in a request's `extra_args`
ROWS = 32  # of a matrix product
BLOCK = 32  # tokens that are kept together: vLLM's 128 are longer than many a prompt


def make_repeatable() -> None:
    """In each process of vLLM's, before there is an engine."""
    if os.environ.get(WANTED) != "1":
        return
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _read_prompts_whole(type(current_platform))
        _go_on_from_named_readings()
        _attend_on_one_thread()
        _multiply_blocks_of_rows()


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
    """Both where a step's attention is shared among threads, and where it is done by as many as it was shared for."""
    import torch
    from vllm import _custom_ops

    set_threads = torch.set_num_threads  # an engine's process soon has one in its place that does nothing

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
        filled = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % ROWS))
        products = [multiply(layer, block, *rest) for block in filled.split(ROWS)]
        return torch.cat(products)[: len(rows)].view(*x.shape[:-1], -1)

    utils.cpu_unquantized_gemm = in_blocks
