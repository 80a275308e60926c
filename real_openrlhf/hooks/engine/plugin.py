"""What each of vLLM's processes of a training or an evaluation gets from us. vLLM loads this as a plugin (setup.py).

An engine's process ends when its parent process ends. vLLM itself ends the engine if the parent exits normally. If
the parent was killed, as Ray's workers are when their raylet ends, the engine stayed alive and kept its memory.
"""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.process import BaseProcess

# Set for our own engines. Other uses of vLLM in this environment are not affected.
WANTED = "REAL_ENGINE"
# FlashInfer's sampler is compiled with nvcc at its first use, and does not support requests with a seed.
ENVIRONMENT = {WANTED: "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
# On a CPU, unless the user says otherwise
ON_CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; vLLM would take a share of the machine's memory
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine runs in the process that makes it
    "TORCHDYNAMO_DISABLE": "1",  # compiling takes longer than a small run
    "VLLM_NO_USAGE_STATS": "1",
}
PATIENCE = 10.0  # seconds between SIGTERM and SIGKILL


def start() -> None:
    """vLLM calls this in each of its processes before it makes an engine."""
    if os.environ.get(WANTED) != "1":
        return
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from real_openrlhf.hooks.cpu.bf16_products import widen
        from real_openrlhf.hooks.cpu.vllm import prefill_whole_prompts

        widen()
        prefill_whole_prompts(type(current_platform))


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)
