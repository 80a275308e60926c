"""vLLM's engine process ends with the process that it works for. vLLM loads this as a plugin (setup.py).

vLLM ends it when that one ends in order. One that was killed, as Ray's workers are when their raylet ends, left it
behind with its memory (found by benchmarks/kill_campaign.py).
"""

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.process import BaseProcess

# Set by a process for its own engines (requests.py), not for other users of vLLM in this environment.
WANTED = "REAL_ENGINE_ENDS_WITH_PARENT"
# FlashInfer's sampler compiles itself with nvcc, and takes no request that has a seed.
ENVIRONMENT = {WANTED: "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
PATIENCE = 10.0  # seconds for an end in order


def end_with_parent() -> None:
    """In each process of vLLM's."""
    parent = multiprocessing.parent_process()
    if parent and os.environ.get(WANTED) == "1":
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)
