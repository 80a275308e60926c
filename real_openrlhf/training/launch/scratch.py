"""A folder for the sockets and logs of Ray and vLLM in one run on this machine; it goes after a clean end."""

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LONGEST = 34  # characters of the folder: Ray's names below it take 73, and a socket's path has 107 at most
SECONDS = 3.0  # for processes that still write


def end_ray(folder: str) -> None:
    """End Ray's agents: after the run's end they would try for a minute to reach a cluster that is gone.

    Again until none is found: one that is just starting has no words yet, or starts another.
    """
    mark, deadline, found = f"RAY_TMPDIR={folder}".encode(), time.monotonic() + SECONDS, True
    while found and time.monotonic() < deadline:
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes()
                if (words.startswith(b"ray::") or b"/ray/" in words) and mark in (process / "environ").read_bytes():
                    os.kill(int(process.name), signal.SIGKILL)
                    found = True
        time.sleep(0.1 * found)


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
        end_ray(folder)
        scratch.keep = scratch.keep and bool(os.listdir(folder))
        deadline = time.monotonic() + SECONDS
        while not scratch.keep and os.path.isdir(folder):
            shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
