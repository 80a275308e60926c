"""`train --config FILE.toml`: options and flags of a run in a file; typed ones win. Each run folder gets its own."""

import argparse
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import PassThrough, path_of
from real_openrlhf.base.secrets import has_one, taken_out
from real_openrlhf.training.run_inputs import SHORTHANDS

NAME = "config.toml"  # in a run folder
# Keys at the top of a file; all flags of OpenRLHF are in its table [flags].
OPTIONS = ("recipe", "algo", "model", "data", "data-dir", "seed", "max-steps", "gpus", "nodes", "runs-dir", "run-name")


class WithConfig(PassThrough):
    """Puts the words of --config before the typed words, which win; a shorthand becomes OpenRLHF's flag."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        typed = [*(args or ())]
        only = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        only.add_argument("--config", type=path_of)
        path = only.parse_known_args(typed)[0].config
        try:
            written = [word for words in read(path).values() for word in words] if path else []
        except UserError as error:
            self.error(str(error))
        pairs = (word.partition("=") for word in (*written, *typed))
        words = [SHORTHANDS.get(name, name) + equals + value for name, equals, value in pairs]
        return super().parse_known_args(words, namespace)


def read(path: Path) -> dict[str, list[str]]:
    """{an option or flag without dashes: its words}."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--config {path} cannot be read: {error}") from error
    flags = content.pop("flags", {})
    if unknown := sorted(content.keys() - {*OPTIONS}):
        raise UserError(
            f"--config {path}: unknown key {unknown[0]}. There are: {', '.join(OPTIONS)}; OpenRLHF's flags are in a "
            "table [flags]"
        )
    pairs = [*content.items(), *_flat(flags if isinstance(flags, dict) else {"": flags})]
    found = {name: _words(path, name, value) for name, value in pairs}
    if has_one([word for words in found.values() for word in words]):
        raise UserError(f"--config {path} has a secret, and files are shared. Give that flag on the command line")
    return found


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """`[flags] actor.adam.lr = 1e-4` is a table in a table in TOML."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _words(path: Path, name: str, value: Any) -> list[str]:
    if isinstance(value, bool) and name not in OPTIONS:
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, str | int | float) and not isinstance(value, bool) and name:
        return [f"--{name}={value}"]
    if isinstance(value, list) and name not in OPTIONS and all(isinstance(one, str | int | float) for one in value):
        return [f"--{name}", *map(str, value)]
    raise UserError(
        f"--config {path}: {name or 'flags'} = {value!r} has the wrong type. docs/use/recipes.md shows a file"
    )


def text(recipe: str, algo: str, user: Mapping[str, tuple[str, ...]], removed: Iterable[str]) -> str:
    """A file with which --config trains the same again, without secrets."""
    rows = [f"recipe = {_toml(recipe)}", f"algo = {_toml(algo)}", "", "[flags]"]
    for flag, words in taken_out(user)[0].items():
        value = ", ".join(map(_toml, words))
        rows.append(f"{_key(flag)} = {'true' if not words else value if len(words) == 1 else f'[{value}]'}")
    return "\n".join([*rows, *(f"{_key(flag)} = false" for flag in removed), ""])


def _key(flag: str) -> str:
    return _toml(flag.removeprefix("--"))


def _toml(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
