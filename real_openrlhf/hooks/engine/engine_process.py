"""What each of vLLM's processes gets from us, on any device. vLLM loads this as a plugin (setup.py).

An engine's process ends when its parent process ends, and its children load no library from a path with a space.

vLLM itself ends the engine if the parent exits normally. If the parent was killed, as Ray's workers are when their
raylet ends, the engine stayed alive and kept its memory (found by benchmarks/kill_campaign.py).
"""

import multiprocessing
import os
import re
import signal
import sys
import threading
import time
from multiprocessing.process import BaseProcess
from typing import Any

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


def preload_nothing_with_a_space() -> None:
    """On a CPU vLLM puts two libraries of this environment into LD_PRELOAD, where a space divides two paths. Each
    child of the engine's process, a verifier's too, would begin with errors of ld.so. They only save time."""
    if not re.search(r"[\s:]", sys.prefix):
        return
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    platform: Any = type(current_platform)
    check, before = platform.check_and_update_config, os.environ.get("LD_PRELOAD")

    def check_and_update_config(vllm_config: Any) -> None:
        check(vllm_config)
        os.environ.pop("LD_PRELOAD", None)
        os.environ.update({"LD_PRELOAD": before} if before else {})

    platform.check_and_update_config = staticmethod(check_and_update_config)


def _watch(parent: BaseProcess) -> None:
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)
