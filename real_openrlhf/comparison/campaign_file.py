"""Campaigns: comparisons written down, as TOML files whose keys are `compare`'s own words."""

import argparse
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tomllib

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import PassThrough

FOLDER = Path(__file__).with_name("campaigns")
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
KEYS = "recipe task skill algos seeds first-seed grid steps benchmarks eval-flags flags".split()


def find(name: str) -> Path:
    path = FOLDER / f"{name}.toml" if name in NAMES else Path(name)
    if path.is_file():
        return path
    raise UserError(f"--campaign {name}: no such file, and no campaign of ours: {', '.join(NAMES)}")


def words(path: Path) -> list[str]:
    """The file as a command line; what the user types after it wins."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if unknown := sorted(content.keys() - {"about", *KEYS}):
        raise UserError(f"{path}: unknown key {unknown[0]}. There are: about, {', '.join(KEYS)}")
    return [word for key in KEYS if key in content for word in _option(path, key, content[key])]


def _option(path: Path, key: str, value: Any) -> Iterator[str]:
    if key == "flags":
        yield from shlex.split(str(value))
    elif key == "grid" and isinstance(value, dict):
        for flag, values in value.items():
            yield from ("--grid", flag, *map(str, values))
    elif isinstance(value, str | int | float) and key not in ("algos", "grid"):
        yield f"--{key}={value}"
    elif key == "algos" and isinstance(value, list):
        yield from ("--algos", *map(str, value))
    else:
        raise UserError(f"{path}: {key} = {value!r} is of another kind. See the files in {FOLDER}")


class WithCampaign(PassThrough):
    """Puts a campaign's words before those that were typed."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        typed = [*(args or ())]
        only = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        only.add_argument("--campaign")
        named, _ = only.parse_known_args(typed)
        try:
            written = words(find(named.campaign)) if named.campaign else []
        except UserError as error:
            self.error(str(error))
        return super().parse_known_args([*written, *typed], namespace)
