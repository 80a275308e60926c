"""Types and parsers that several subcommands share."""

import argparse
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError


def whole(text: str) -> int:
    """For `type=`: 0, 1, 2 ..."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def path_of(text: str) -> Path:
    """For `type=`: an empty text would be the current folder."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("the name of a file or folder is missing")
    return Path(text)


def words_of(option: str, text: str) -> list[str]:
    """The words of a text in a shell's quotes."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{option} {text}: {error}. Close each quote.") from None


def positive(text: str) -> int:
    """For `type=`: 1, 2 ..."""
    if whole(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return whole(text)


def share(text: str) -> float:
    """For `type=`: a number above 0 and at most 1."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: give a number above 0 and at most 1")
    return value


def flag_name(text: str) -> str:
    """`actor.adam.lr` and `--actor.adam.lr` are one flag."""
    return f"--{text.removeprefix('--')}"


class PassThrough(argparse.ArgumentParser):
    """Keeps unknown arguments in order under `openrlhf`, for OpenRLHF's parser, instead of refusing them."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        namespace, rest = super().parse_known_args(args, namespace)
        namespace.openrlhf = rest
        return namespace, []
