"""Printed text may come from a model, a file or a run. A terminal must show its control characters, not obey them."""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

# Controls but tab, line feed and carriage return (of progress bars), what turns the direction of text, half letters.
OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    r"""Spelled out, as `\x1b[2J`, whatever a terminal would act on."""
    return OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Plain:
    """A stream that prints plain text only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(plain(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def plain_streams() -> Iterator[None]:
    """Make all plain that a subcommand prints."""
    with contextlib.redirect_stdout(Plain(sys.stdout)), contextlib.redirect_stderr(Plain(sys.stderr)):
        yield
