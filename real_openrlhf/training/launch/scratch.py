"""A folder for the sockets and logs of Ray and vLLM in one run on this machine; it goes after a clean end."""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LONGEST = 34  # characters of the folder: Ray's names below it take 73, and a socket's path has 107 at most
SECONDS = 3.0  # for Ray's last agents, which still write


@dataclass
class Scratch:
    environment: dict[str, str]
    folder: str | None = None
    keep: bool = False  # after a failure, for Ray's logs


@contextlib.contextmanager
def opened(environment: Mapping[str, str]) -> Iterator[Scratch]:
    base = environment.get("RAY_TMPDIR") or environment.get("TMPDIR") or tempfile.gettempdir()
    if len(os.fsencode(base)) + len("/real_12345678") > LONGEST or not os.path.isdir(base):
        yield Scratch(dict(environment))
        return
    folder = tempfile.mkdtemp(prefix="real_", dir=base)
    scratch = Scratch({**environment, "RAY_TMPDIR": folder, "VLLM_RPC_BASE_PATH": folder}, folder)
    try:
        yield scratch
    finally:
        deadline = time.monotonic() + SECONDS
        while not scratch.keep and os.path.isdir(folder):
            shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
