"""What several subcommands share: types of options, parsers, and the name that a mistyped word is near to."""

import argparse
import contextlib
import difflib
import math
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from real_openrlhf.base.errors import UserError


def whole(text: str) -> int:
    """For `type=`: 0, 1, 2 ..."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 0 or more")
    return int(text)


def positive(text: str) -> int:
    """For `type=`: 1, 2 ..."""
    if whole(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not above 0")
    return whole(text)


def path_of(text: str) -> Path:
    """For `type=`: an empty text would be the current folder."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError("the name of a file or folder is missing")
    return Path(text)


def number_of(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def words_of(option: str, text: str) -> list[str]:
    """The words of a text in a shell's quotes."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{option} {text}: {error}. Close each quote.") from None


def shortest(path: str | Path) -> str:
    return min(os.path.relpath(path), str(path), key=len)


def command_line(*words: str | Path) -> str:
    """What to type next, also in a shell that has not activated the environment."""
    activate = f"source {shortest(sys.prefix)}/bin/activate && " * (sys.prefix != sys.base_prefix)
    activate *= os.environ.get("VIRTUAL_ENV") != sys.prefix
    return f"{activate}real-openrlhf {shlex.join(map(str, words))}"


def flag_name(text: str) -> str:
    """`actor.adam.lr` and `--actor.adam.lr` are one flag."""
    return f"--{text.removeprefix('--')}"


def json_value(words: tuple[str, ...]) -> bool | int | float | str | list:
    """A flag's words as run.json keeps them: true for a switch, numbers as numbers; JSON has no infinity."""
    values: list[int | float | str] = [*words]
    for number, word in enumerate(words):
        for kind in (float, int):
            with contextlib.suppress(ValueError):
                values[number] = value if math.isfinite(value := kind(word)) else word
    return True if not values else values[0] if len(values) == 1 else values


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`Did you mean X? ` if one of the names is similar, else an empty text."""
    known = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), known, n=9, cutoff=0.5)
    swapped = [name for name in near if sorted(name) == sorted(word.lower())]  # gpro is grpo, and not gspo
    return f"Did you mean {known[(swapped or near)[0]]}? " if near else ""


class Parser(argparse.ArgumentParser):
    """Of every subcommand: takes no shortened flags, and prints an error in one line."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **named})

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}. `{self.prog} --help` lists what there is\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [*map(str, action.choices)]
            message = f"there is no {value!r}. {did_you_mean(str(value), names)}Choose one of {', '.join(names)}"
            raise argparse.ArgumentError(action, message)


class PassThrough(Parser):
    """Keeps unknown arguments in order under `openrlhf`, for OpenRLHF's parser, instead of refusing them."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        namespace, rest = super().parse_known_args(args, namespace)
        namespace.openrlhf = rest
        return namespace, []
