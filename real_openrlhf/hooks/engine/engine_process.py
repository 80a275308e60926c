"""What each of vLLM's processes gets from us, on any device. vLLM loads this as a plugin (setup.py).

An engine's process ends when its parent process ends, and its children load no library from a path with a space.

vLLM itself ends the engine if the parent exits normally. If the parent was killed, as Ray's workers are when their
raylet ends, the engine stayed alive and kept its memory (found by benchmarks/kill_campaign.py).
"""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.process import BaseProcess

from real_openrlhf.hooks.fixes.process_starts import preload_nothing_with_a_space
from real_openrlhf.machine import engine_reason

# requests.py sets this variable for engines of its own process. Other uses of vLLM here are not affected.
WANTED = "REAL_ENGINE_ENDS_WITH_PARENT"
# FlashInfer's sampler is compiled with nvcc at its first use, and does not support requests with a seed.
ENVIRONMENT = {WANTED: "1", engine_reason.FILE: engine_reason.PRINTED, "VLLM_USE_FLASHINFER_SAMPLER": "0"}
PATIENCE = 10.0  # seconds between SIGTERM and SIGKILL


def end_with_parent() -> None:
    """The plugin's entry point, which vLLM calls in each of its processes before it makes an engine."""
    preload_nothing_with_a_space()
    parent = multiprocessing.parent_process()
    if parent and os.environ.get(WANTED) == "1":
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)
