"""A copy of runs that is small enough to commit, and says nothing of the machine that made them."""

import json
from collections.abc import Iterable
from pathlib import Path

from real_openrlhf.files import write_json, write_jsonl
from real_openrlhf.training.tiny_model import cache_folder

DIGITS = 6  # significant ones of a logged number


def publish(folders: Iterable[Path], out: Path) -> None:
    """run.json and metrics.jsonl of every run, with paths that mean something elsewhere."""
    for folder in folders:
        path = out / "runs" / folder.name
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "run.json", json.loads(_portable((folder / "run.json").read_text(), folder)))
        lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
        write_jsonl(path / "metrics.jsonl", ({key: _short(value) for key, value in line.items()} for line in lines))


def _portable(text: str, folder: Path) -> str:
    cache = str(cache_folder())
    for here, there in ((str(folder.parent), "runs"), (cache, "CACHE"), (f"{Path.cwd()}/", "")):
        text = text.replace(here, there)
    return text


def _short(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
