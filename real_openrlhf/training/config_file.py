"""`train --config FILE.toml`: options of `train` at its top, OpenRLHF's flags in a table [flags]; typed ones win."""

import argparse
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import PassThrough, path_of
from real_openrlhf.training.run_inputs import SHORTHANDS


class WithConfig(PassThrough):
    """Puts the words of --config before the typed words; a shorthand becomes OpenRLHF's flag."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        only, typed = argparse.ArgumentParser(add_help=False, allow_abbrev=False), [*(args or ())]
        only.add_argument("--config", type=path_of)
        path = only.parse_known_args(typed)[0].config
        pairs = (word.partition("=") for word in (*(read(path) if path else ()), *typed))
        words = [SHORTHANDS.get(name, name) + equals + value for name, equals, value in pairs]
        return super().parse_known_args(words, namespace)


def read(path: Path) -> list[str]:
    """The file as words of a command line."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        content |= content.pop("flags", {})
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"--config {path} cannot be read: {error}") from error
    return [word for name, value in content.items() for word in _words(name, value)]


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, dict):  # `actor.adam.lr = 1e-4` is a table in a table in TOML
        return [word for key, inner in value.items() for word in _words(f"{name}.{key}", inner)]
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", *map(str, value)] if isinstance(value, list) else [f"--{name}={value}"]
