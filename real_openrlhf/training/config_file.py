"""`train --config FILE.toml`: options and flags of a run in a file; typed ones win. Each run folder gets its own."""

import argparse
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import PassThrough, path_of
from real_openrlhf.base.secrets import has_one, taken_out
from real_openrlhf.training.run_inputs import SHORTHANDS

NAME = "config.toml"  # in a run folder
# Keys at the top of a file; all flags of OpenRLHF are in its table [flags].
OPTIONS = ("recipe", "algo", "model", "data", "data-dir", "seed", "max-steps", "gpus", "nodes", "runs-dir", "run-name")
ABOUT, LISTS, GRID = "about", ("algos",), "grid"  # keys of a campaign: of readers, a list, and a table of lists


class WithConfig(PassThrough):
    """Puts the words of --config before the typed words, which win; a shorthand becomes OpenRLHF's flag."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        typed = [*(args or ())]
        only = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        only.add_argument("--config", type=path_of)
        path = only.parse_known_args(typed)[0].config
        try:
            written = read(path) if path else []
        except UserError as error:
            self.error(str(error))
        pairs = (word.partition("=") for word in (*written, *typed))
        words = [SHORTHANDS.get(name, name) + equals + value for name, equals, value in pairs]
        return super().parse_known_args(words, namespace)


def read(path: Path, option: str = "--config", keys: Sequence[str] = OPTIONS) -> list[str]:
    """The file as words of a command line; `option` names it, and `keys` may stand at its top."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{option} {path} cannot be read: {error}") from error
    flags = content.pop("flags", {})
    if unknown := sorted(content.keys() - {*keys}):
        raise UserError(
            f"{option} {path}: unknown key {unknown[0]}. There are: {', '.join(keys)}; OpenRLHF's flags are in a "
            "table [flags]"
        )
    pairs = [*content.items(), *_flat(flags if isinstance(flags, dict) else {"": flags})]
    words = [word for name, value in pairs for word in _words(f"{option} {path}", name, value, name in keys)]
    if has_one(words):
        raise UserError(f"{option} {path} has a secret, and files are shared. Give that flag on the command line")
    return words


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """`[flags] actor.adam.lr = 1e-4` is a table in a table in TOML."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _words(file: str, name: str, value: Any, is_key: bool) -> list[str]:
    if name == ABOUT and isinstance(value, str):
        return []
    if isinstance(value, bool) and not is_key:
        return [f"--{name}" if value else f"--no-{name}"]
    if isinstance(value, str | int | float) and not isinstance(value, bool) and name and name not in LISTS:
        return [f"--{name}={value}"]
    if name == GRID and isinstance(value, dict) and all(isinstance(one, list) for _, one in _flat(value)):
        return [word for flag, values in _flat(value) for word in ("--grid", flag, *map(str, values))]
    if (
        isinstance(value, list)
        and is_key == (name in LISTS)
        and all(isinstance(one, str | int | float) for one in value)
    ):
        return [f"--{name}", *map(str, value)]
    said = f"{file}: {name or 'flags'} = {value!r} has the wrong type"
    raise UserError(f"{said}. docs/use/recipes.md and docs/use/campaigns.md show files")


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
