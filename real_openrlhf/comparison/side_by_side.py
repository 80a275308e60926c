"""Forks of this process that take from one list what is to be done, and whose words carry their numbers."""

import ctypes
import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


class Numbers:
    """0, 1, 2 ... of a list of this length, each once, whoever asks. After `close` there are no more."""

    def __init__(self, count: int) -> None:
        self.count, self.next = count, multiprocessing.get_context("fork").Value("i", 0)

    def take(self) -> int | None:
        with self.next.get_lock():
            if self.next.value >= self.count:
                return None
            self.next.value += 1
            return self.next.value - 1

    def close(self) -> None:
        with self.next.get_lock():
            self.next.value = self.count


def side_by_side(jobs: int, work: Callable[[int], Result]) -> list[tuple[int, Result | None]]:
    """work(1), work(2) ... at the same time: (exit code, what it returned) of each, in the order of their numbers.

    A signal is passed on to all of them, and they die with us.
    """
    context = multiprocessing.get_context("fork")
    started: list[tuple[Any, Connection, threading.Thread]] = []

    def stop(number: int, _: FrameType | None) -> None:
        for process in (one[0] for one in started):
            if process.is_alive():
                os.kill(process.pid, number)

    before = {number: signal.signal(number, stop) for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN}
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # what comes before all are known comes after
        for job in range(1, jobs + 1):
            here, there = context.Pipe(duplex=False)
            source, sink = os.pipe()
            sys.stdout.flush()
            process = context.Process(target=_child, args=(job, work, there, sink, dict(before)))
            process.start()
            there.close()
            os.close(sink)
            reader = threading.Thread(target=_repeat, args=(f"[{job}] ", source))
            reader.start()
            started.append((process, here, reader))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return [_outcome(*one) for one in started]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _child(job: int, work: Callable[[int], Any], answer: Connection, sink: int, handlers: dict[int, Any]) -> None:
    os.setpgid(0, 0)  # a terminal's Ctrl-C comes once, through whoever started us
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    for stream in (1, 2):
        os.dup2(sink, stream)
    os.close(sink)
    sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(n, "wb", 0), write_through=True) for n in (1, 2))
    answer.send(work(job))


def _repeat(before: str, source: int) -> None:
    with os.fdopen(source, errors="replace") as lines:
        for line in lines:
            print(f"{before}{line}", end="", flush=True)


def _outcome(process: Any, answer: Connection, reader: threading.Thread) -> tuple[int, Any]:
    try:
        result = answer.recv()
    except EOFError:
        result = None
    process.join()
    reader.join()
    return process.exitcode, result
