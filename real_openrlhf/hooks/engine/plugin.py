"""What each of vLLM's processes of a training or an evaluation gets from us. vLLM loads this as a plugin (setup.py).

An engine's process ends when its parent process ends. vLLM itself ends the engine if the parent exits normally. If
the parent was killed, as Ray's workers are when their raylet ends, the engine stayed alive and kept its memory.

On a CPU each prompt is prefilled whole. vLLM 0.29 to 0.32 cuts a prompt that exceeds the tokens left in a step, and
then rewinds the generator of a request with a seed, which a CPU generator cannot do (`CPU Generator does not use
offset`): the engine dies. This can go when vLLM's CPU runner restores a generator's state when it drops a number.
"""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.process import BaseProcess
from typing import Any

# Set for our own engines. Other uses of vLLM in this environment are not affected.
WANTED = "REAL_ENGINE"
# FlashInfer's sampler is compiled with nvcc at its first use, and does not support requests with a seed.
ENVIRONMENT = {WANTED: "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
# vLLM has two model runners, and takes the second wherever it finds Triton, so on every GPU. Our tests run the first:
# the second needs Triton, and nobody has compared both in training (docs/use/gpu.md). The user's value wins.
V2 = "VLLM_USE_V2_MODEL_RUNNER"
PATIENCE = 10.0  # seconds between SIGTERM and SIGKILL


def environment() -> dict[str, str]:
    """Variables of a process that makes an engine."""
    return ENVIRONMENT | {V2: os.environ.get(V2) or "0"}


def start() -> None:
    """vLLM calls this in each of its processes before it makes an engine."""
    if os.environ.get(WANTED) != "1":
        return
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _prefill_whole_prompts(type(current_platform))


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)


def _prefill_whole_prompts(platform: Any) -> None:
    check = platform.check_and_update_config

    def check_and_update_config(vllm_config: Any) -> None:
        check(vllm_config)
        scheduler, model = vllm_config.scheduler_config, vllm_config.model_config
        scheduler.enable_chunked_prefill = False
        scheduler.max_num_batched_tokens = max(scheduler.max_num_batched_tokens, model.max_model_len)

    platform.check_and_update_config = staticmethod(check_and_update_config)
