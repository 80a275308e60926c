"""The client of the workers: every request is answered by its deadline; only workers compute.

Workers are separate processes (no forks: the caller may hold CUDA, Ray, threads). A late one ends and is replaced in
the background, so that the next request finds a ready worker. The deadline is CPU time, so a busy machine costs no
verdict; a worker that waits instead of computing is killed after ten times as long.
"""

import contextlib
import json
import logging
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from same_answer.process import NoVerdict

logger = logging.getLogger("same_answer")
START_SECONDS = 60.0
T = TypeVar("T", int, float)
PATIENCE = 10  # times the deadline, for a worker that waits
ALGEBRA = "same_answer.worker"
# Modules come from the standard library, then site-packages, then where the client finds its own; not from the working
# directory first, as with `-m`, which may hold a json.py. same_answer is the client's own copy.
_START = """
import sys
sys.path = [*filter(None, sys.path)]
import importlib.util, json, runpy
sys.path += json.loads(sys.argv.pop(1))
spec = importlib.util.spec_from_file_location("same_answer", sys.argv.pop(1))
sys.modules["same_answer"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["same_answer"])
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""


@dataclass(frozen=True)
class Limits:
    """Limits of one worker: seconds of CPU time per request, megabytes of address space."""

    deadline: float = 2.0
    memory: int = 2048


@cache
def settings() -> tuple[int, Limits]:
    """How many workers, and their limits, of the environment; raises ValueError for what cannot be."""
    workers = _setting("SAME_ANSWER_WORKERS", int, 2, 1)
    return workers, Limits(
        _setting("SAME_ANSWER_DEADLINE", float, 2.0, 0.1), _setting("SAME_ANSWER_MEMORY_MB", int, 2048, 256)
    )


def _setting(name: str, kind: Callable[[str], T], default: T, least: T) -> T:
    text = os.environ.get(name, "")
    try:
        value = kind(text) if text else default
    except ValueError:
        value = None
    if value is None or not least <= value < math.inf:
        raise ValueError(f"{name}={text}: this is a number, at least {least}")
    return value


class Worker:
    """One process and its two pipes; used by one thread at a time."""

    def __init__(self, program: str, limits: Limits):
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONPATH", None)  # it would come before the standard library
        beside = json.dumps([path for path in sys.path if path])
        words = [sys.executable, "-c", _START, beside, str(Path(__file__).resolve().with_name("__init__.py")), program]
        words += [str(limits.memory), str(os.getpid())]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()  # closes its pipes and waits for its end

    def ask(self, request: dict | None, seconds: float) -> dict:
        """The reply; None waits until the worker is ready. Blocks without the GIL; a timer kills a late worker."""
        assert self.process.stdin and self.process.stdout
        end = time.monotonic() + seconds
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n" if request else b"")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            timer.cancel()
        if line.endswith(b"\n"):
            return json.loads(line)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        late = time.monotonic() >= end or self.process.returncode == -signal.SIGPROF
        raise NoVerdict("timeout", "ended at the deadline") if late else NoVerdict("worker_died")


class WorkerPool:
    """A few ready workers, one more than callers need: nobody waits while a killed worker is replaced."""

    def __init__(self, size: int, limits: Limits, program: str = ALGEBRA):
        self.size, self.limits, self.program = size, limits, program
        # Last in, first out: the worker asked last has its caches warm, and the spare stays a spare.
        self._ready: queue.LifoQueue[Worker | NoVerdict] = queue.LifoQueue()
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(size):
            self._wanted.put(None)
        # One thread starts all workers, waits for none, and lives as long as this process: Linux kills a child that
        # asked to die with its parent when the *thread* that started it ends.
        threading.Thread(target=self._start_workers, name="verifier-workers", daemon=True).start()

    def ask(self, request: dict) -> dict:
        """A worker's reply; raises NoVerdict. If the worker died, the request goes once to another worker."""
        try:
            return self._ask_one(request)
        except NoVerdict as verdict:
            if verdict.reason == "worker_died":
                return self._ask_one(request)
            raise

    def _ask_one(self, request: dict) -> dict:
        """Ask one worker, and replace it if it fails, because its libraries may be in a broken state."""
        worker = self._next_worker()
        try:
            reply = worker.ask({"seconds": self.limits.deadline, **request}, PATIENCE * self.limits.deadline)
        except BaseException:
            self._replace(worker)
            raise
        failed = reply.get("failed")
        if failed and not reply.get("whole"):
            self._replace(worker)
        else:
            self._ready.put(worker)
        if failed:
            raise NoVerdict(failed, reply.get("detail", ""))
        return reply

    def _next_worker(self) -> Worker:
        end, failures = time.monotonic() + START_SECONDS, 0
        while True:
            try:
                worker = self._ready.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                raise NoVerdict("worker_unavailable", f"none was free for {START_SECONDS:.0f} s") from None
            if isinstance(worker, NoVerdict):
                self._wanted.put(None)
                failures += 1
                if failures > self.size:  # each of them, and then one that was started once more
                    raise worker
                continue
            if worker.process.poll() is None:
                return worker
            logger.warning("an idle verifier worker was gone (pid %d); starting another", worker.process.pid)
            self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        worker.kill()
        self._wanted.put(None)

    def _start_workers(self) -> None:
        while True:
            self._wanted.get()
            try:
                worker = Worker(self.program, self.limits)
                threading.Thread(target=self._make_ready, args=(worker,), daemon=True).start()
            except Exception as error:
                self._ready.put(NoVerdict("worker_unavailable", f"the worker could not be started: {error}"))

    def _make_ready(self, worker: Worker) -> None:
        try:
            worker.ask(None, START_SECONDS)
            self._ready.put(worker)
        except Exception as error:
            worker.kill()
            self._ready.put(NoVerdict("worker_unavailable", f"the worker could not be started: {error}"))
