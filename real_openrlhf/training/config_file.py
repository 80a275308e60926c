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
LISTS, GRID = ("algos",), "grid"  # keys of a campaign: a list, and a table of lists
SAME = {name: flag.removeprefix("--") for name, flag in SHORTHANDS.items()}


class WithConfig(PassThrough):
    """Puts the words of --config before the typed words, without those that are typed too."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        typed = [*(args or ())]
        only = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        only.add_argument("--config", type=path_of)
        path = only.parse_known_args(typed)[0].config
        try:
            written = without_typed(read(path), typed) if path else []
        except UserError as error:
            self.error(str(error))
        return super().parse_known_args([*written, *typed], namespace)


def read(path: Path, option: str = "--config", keys: Sequence[str] = OPTIONS) -> dict[str, list[str]]:
    """{an option or flag without dashes: its words}; `option` names the file, which may have `keys` at its top."""
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
    found = {name: _words(f"{option} {path}", name, value, name in keys) for name, value in pairs}
    if has_one([word for words in found.values() for word in words]):
        raise UserError(f"{option} {path} has a secret, and files are shared. Give that flag on the command line")
    return found


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """`[flags] actor.adam.lr = 1e-4` is a table in a table in TOML."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _words(file: str, name: str, value: Any, is_key: bool) -> list[str]:
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


def without_typed(found: Mapping[str, list[str]], typed: Iterable[str]) -> list[str]:
    names = {word.partition("=")[0].removeprefix("--no-").removeprefix("--") for word in typed if word[:2] == "--"}
    names |= {long for short, long in SAME.items() if short in names}
    names |= {short for short, long in SAME.items() if long in names}
    return [word for name, words in found.items() if name not in names for word in words]


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
