"""The output of subcommands: errors, one line each with the next step, and foreign text without control characters.

Printed text may come from a model, a file or a run. A terminal must show its control characters and not act on them.
"""

import contextlib
import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn, TextIO

LONGEST = 2000  # characters of one problem, also of one that lists a cluster's nodes


class NonFiniteError(RuntimeError):
    """A loss, score or gradient was nan or infinite; the model keeps the weights of the step before."""


class UserError(Exception):
    """One problem or several; the command line prints a line for each and exits with 2, without a traceback."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


# wandb's key travels as a variable of the environment: no record, print or command line of ours has it

WANDB_KEY, REWARD = "--logger.wandb.key", "--reward.remote_url"
KEY_VARIABLE = "WANDB_API_KEY"
BY_VARIABLE = "env"  # as value of WANDB_KEY: wandb reads KEY_VARIABLE
HIDDEN = "***"
LOGIN = re.compile(r"(?<=://)[^/\s@'\"]+@")  # user and password in a URL
TYPED = re.compile(rf"({re.escape(WANDB_KEY)}[= ]+)(?!{BY_VARIABLE}\b)\S+")


def hidden(text: str) -> str:
    return TYPED.sub(rf"\1{HIDDEN}", LOGIN.sub(f"{HIDDEN}@", text) if "://" in text else text)


def hide(words: Sequence[str]) -> list[str]:
    """The words of a command line without secrets."""
    pairs = zip(["", *words], words, strict=False)
    return [HIDDEN if before == WANDB_KEY and word != BY_VARIABLE else hidden(word) for before, word in pairs]


# Foreign text

# Controls but tab, line feed and carriage return (of progress bars); marks of text direction; lone surrogates.
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    r"""Replaces each character that a terminal would act on by its escape, like `\x1b`."""
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class Plain:
    """A stream that prints plain text only, without passwords. It goes on when its reader ends, as `head` does."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"  # a terminal may know fewer letters
        with self._unread():
            self._stream.write(hidden(plain(text)).encode(encoding, "replace").decode(encoding))
        return len(text)

    def flush(self) -> None:
        with self._unread():
            self._stream.flush()

    @contextlib.contextmanager
    def _unread(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            if not isinstance(error, BrokenPipeError):
                raise  # a full disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


# Ctrl-C, SIGTERM and SIGHUP end a command through its clean-up. One that its starter ignores, as nohup does, stays so

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
    """Signals wait until the block is through, such as the writing of how a run ended."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def code_and_words(ended: KeyboardInterrupt) -> tuple[int, str]:
    """The exit code, and `interrupted by SIGINT`."""
    number = getattr(ended, "number", signal.SIGINT)
    return 128 + number, f"interrupted by {signal.Signals(number).name}"


# Errors of a path that the user has named.
PATHS = {getattr(errno, name) for name in "EACCES EINVAL EISDIR ELOOP ENAMETOOLONG ENOTDIR EPERM EROFS".split()}


def exit_code(command: str, run: Callable[[], int]) -> int:
    """Run a subcommand and return its exit code. Output becomes plain; errors that the user can fix are printed."""
    out, err = Plain(sys.stdout), Plain(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), signals_raised():
        try:
            code = run()
            out.flush()
            return code
        except UserError as error:
            code, problems = 2, error.problems
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                code, problems = 1, [f"{error}. Free some space and try again."]
            elif error.errno in PATHS and error.filename is not None:
                code, problems = 2, [f"{error.filename}: {error.strerror}. Name a path that can be used."]
            else:
                raise
        except KeyboardInterrupt as error:
            code, words = code_and_words(error)
            print(f"real-openrlhf {command}: {words}", file=sys.stderr)
            return code
        for problem in problems:
            print(f"real-openrlhf {command}: error: {on_one_line(problem)}", file=sys.stderr)
        return code


def on_one_line(problem: str) -> str:
    """Escape line ends, which file names may contain, and shorten a problem that quotes a very long line."""
    line = problem.replace("\r", "\\r").replace("\n", "\\n")
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def first_line(error: BaseException) -> str:
    """The first line of a foreign error, for libraries that name the cause first."""
    return _lines(error)[0].rstrip(".")


def last_line(error: BaseException) -> str:
    """The last line of a foreign error, for errors that name the cause after another machine's traceback."""
    return _lines(error)[-1]


def _lines(error: BaseException) -> list[str]:
    return str(error).strip().splitlines() or [type(error).__name__]
