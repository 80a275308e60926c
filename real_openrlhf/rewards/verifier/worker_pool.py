"""The client of the algebra workers: every request is answered by its deadline, and no thread of ours ever computes.

Workers are separate processes (no forks of ours: the caller may hold CUDA, Ray, threads), killed when they are late
and replaced in the background, so that the next request finds one ready.
"""

import json
import logging
import os
import queue
import select
import threading
import time
from dataclasses import dataclass

from real_openrlhf.rewards.verifier.worker_template import START_SECONDS, Template

logger = logging.getLogger("real_openrlhf.verifier")
template = Template()  # one for all pools


class NoVerdict(Exception):
    """It cannot be said whether the answer is right; `reason` is a short name for counting."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


@dataclass(frozen=True)
class Limits:
    """Of one worker: seconds a request may take, megabytes of address space."""

    deadline: float = 2.0
    memory: int = 2048


class Worker:
    """One process and its two pipes; used by one thread at a time."""

    def __init__(self, limits: Limits):
        self.limits = limits
        (requests, self._requests), (self._replies, replies) = os.pipe(), os.pipe()
        try:
            self.number = template.fork(limits.deadline, limits.memory, (requests, replies))
        except BaseException:
            self._close()
            raise
        finally:
            os.close(requests)
            os.close(replies)
        os.set_blocking(self._requests, False)
        self._pending = b""

    def wait_until_ready(self) -> None:
        if not self._read_line(START_SECONDS).get("ready"):
            raise NoVerdict("worker_unavailable", "it did not say that it is ready")

    def ask(self, request: dict) -> dict:
        end = time.monotonic() + self.limits.deadline
        self._write(json.dumps(request).encode() + b"\n", end)
        return self._read_line(end - time.monotonic())

    def alive(self) -> bool:
        poller = select.poll()
        poller.register(self._replies, 0)  # only whether the other end is closed
        return not poller.poll(0)

    def kill(self) -> None:
        template.kill(self.number)
        self._close()

    def _close(self) -> None:
        os.close(self._requests)
        os.close(self._replies)

    def _write(self, data: bytes, end: float) -> None:
        while data:
            self._wait_for(self._requests, select.POLLOUT, end - time.monotonic())
            try:
                data = data[os.write(self._requests, data) :]
            except BrokenPipeError as error:
                raise NoVerdict("worker_died") from error

    def _read_line(self, seconds: float) -> dict:
        end = time.monotonic() + seconds
        while b"\n" not in self._pending:
            self._wait_for(self._replies, select.POLLIN, end - time.monotonic())
            chunk = os.read(self._replies, 65536)
            if not chunk:
                raise NoVerdict("worker_died")
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return json.loads(line)

    @staticmethod
    def _wait_for(pipe: int, event: int, seconds: float) -> None:
        poller = select.poll()  # select() refuses descriptors above 1023, which a rollout actor may have
        poller.register(pipe, event)
        if seconds <= 0 or not poller.poll(seconds * 1000):
            raise NoVerdict("timeout", "killed at the deadline")


class WorkerPool:
    """A few ready workers; one more than callers need, so that a killed one is not waited for."""

    def __init__(self, size: int, limits: Limits):
        self.limits = limits
        # Last in, first out: the worker asked last has its caches warm, and the spare stays a spare.
        self._ready: queue.LifoQueue[Worker | NoVerdict] = queue.LifoQueue()
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(size):
            self._wanted.put(None)
        # One thread starts all workers and lives as long as this process: Linux kills a child that asked to die with
        # its parent, as the template does, when the *thread* that started it ends.
        threading.Thread(target=self._start_workers, name="verifier-workers", daemon=True).start()

    def ask(self, request: dict) -> dict:
        """A worker's reply, or NoVerdict. One that dies may have been killed from outside: another is asked."""
        try:
            return self._ask_one(request)
        except NoVerdict as verdict:
            if verdict.reason != "worker_died":
                raise
            return self._ask_one(request)

    def _ask_one(self, request: dict) -> dict:
        """Raises NoVerdict, after which the worker is gone and another is on its way."""
        worker = self._next_worker()
        try:
            reply = worker.ask(request)
        except BaseException:
            worker.kill()
            self._wanted.put(None)
            raise
        if reply.get("last"):
            worker.kill()
            self._wanted.put(None)
        else:
            self._ready.put(worker)
        if "failed" in reply:
            raise NoVerdict(reply["failed"], reply.get("detail", ""))
        return reply

    def _next_worker(self) -> Worker:
        while True:
            try:
                worker = self._ready.get(timeout=START_SECONDS)
            except queue.Empty:
                raise NoVerdict("worker_unavailable", f"none was free for {START_SECONDS:.0f} s") from None
            if isinstance(worker, NoVerdict):
                self._wanted.put(None)
                raise worker
            if worker.alive():
                return worker
            logger.warning("an idle verifier worker was gone (pid %d); starting another", worker.number)
            worker.kill()
            self._wanted.put(None)

    def _start_workers(self) -> None:
        while True:
            self._wanted.get()
            try:
                worker = Worker(self.limits)
                try:
                    worker.wait_until_ready()
                except NoVerdict:
                    worker.kill()
                    raise
                self._ready.put(worker)
            except Exception as error:
                self._ready.put(NoVerdict("worker_unavailable", f"it could not be started: {error}"))
