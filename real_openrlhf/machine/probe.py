"""Runs code that may hang or crash in a process of its own: CUDA, Ray, vLLM, the verifier.

Also where libraries keep caches if the home folder cannot be written.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
# Variable -> folder. HF_HOME stays: its models and its token can be read.
CACHES = {
    "TRITON_CACHE_DIR": "triton",
    "HF_DATASETS_CACHE": "datasets",
    "HF_MODULES_CACHE": "modules",
    "VLLM_CACHE_ROOT": "vllm",
    "VLLM_CONFIG_ROOT": "vllm",
    "MPLCONFIGDIR": "matplotlib",
    "NUMBA_CACHE_DIR": "numba",
}


class ProbeFailed(Exception):
    """A program crashed or did not answer in time; the text says which."""


def probe(program: str, timeout: float) -> dict:
    """Run Python text in a new process; its last line of output is the JSON answer."""
    with (
        tempfile.TemporaryDirectory() as caches,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err,
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=out,
            stderr=err,
            env={**caches_elsewhere(Path(caches)), **os.environ, **QUIET},
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ProbeFailed(f"no answer after {timeout:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # the program and its children
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        if process.returncode:
            lines = err.read().strip().splitlines()
            raise ProbeFailed(lines[-1] if lines else f"exit code {process.returncode}")
        return json.loads(out.read().strip().splitlines()[-1])


def home_is_writable() -> bool:
    home = Path(os.path.expanduser("~"))
    there = next(path for path in (home, *home.parents) if os.path.lexists(path))
    return os.path.isdir(there) and os.access(there, os.W_OK | os.X_OK)


def caches_elsewhere(cache: Path) -> dict[str, str]:
    """Variables that move the libraries' caches below `cache`, if the home folder cannot be written."""
    return {} if home_is_writable() else {name: str(cache / "libraries" / folder) for name, folder in CACHES.items()}
