"""The output of subcommands: errors, one line each with the next step, and foreign text without control characters.

Printed text may come from a model, a file or a run. A terminal must show its control characters and not act on them.
"""

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.secrets import hidden
from real_openrlhf.base.signals import code_and_words, signals_raised

LONGEST = 2000  # characters of one problem, also of one that lists a cluster's nodes
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
