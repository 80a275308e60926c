"""Ctrl-C, SIGTERM and SIGHUP end a command through its clean-up. What its starter ignores, as nohup does, stays so."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(KeyboardInterrupt):
    """A signal asked this command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def watched_signals() -> list[signal.Signals]:
    return [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]


@contextlib.contextmanager
def signals_raised() -> Iterator[None]:
    """In the block each of the signals raises Ended, so that every `finally` runs."""

    def end(number: int, _: FrameType | None) -> NoReturn:
        raise Ended(number)

    if threading.current_thread() is not threading.main_thread():  # only that one can set handlers
        yield
        return
    before = {number: signal.signal(number, end) for number in watched_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Signals wait until the block is through, as while a run's record is written; a process started in it holds them.

    The mask is this thread's: where another thread takes a signal, Python runs the handler in the main one at once.
    """
    came: list[int] = []

    def raise_first() -> None:
        if came:
            signal.raise_signal(came[0])

    with contextlib.ExitStack() as after:
        after.callback(raise_first)
        if threading.current_thread() is threading.main_thread():
            for number in watched_signals():
                after.callback(signal.signal, number, signal.signal(number, lambda number, _: came.append(number)))
        after.callback(signal.pthread_sigmask, signal.SIG_SETMASK, signal.pthread_sigmask(signal.SIG_BLOCK, ENDING))
        yield


def code_and_words(ended: KeyboardInterrupt) -> tuple[int, str]:
    """The exit code, and `interrupted by SIGINT`."""
    number = getattr(ended, "number", signal.SIGINT)
    return 128 + number, f"interrupted by {signal.Signals(number).name}"
