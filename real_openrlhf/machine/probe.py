"""Runs code that may hang or crash in a process of its own: CUDA, Ray, vLLM, the verifier."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


class ProbeFailed(Exception):
    """A program crashed or did not answer in time; the text says which."""


def probe(program: str, timeout: float) -> dict:
    """Run Python text in a new process; its last line of output is the JSON answer."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as err,
    ):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=out,
            stderr=err,
            env={**os.environ, **QUIET},
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
