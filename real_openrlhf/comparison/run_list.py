"""The runs of a comparison: methods x cells of a grid x seeds, each with the words of its training."""

import itertools
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import flag_name
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command as train_command
from real_openrlhf.training.request import Request


@dataclass(frozen=True)
class Entry:
    """One run of the comparison: an algorithm with its own flags, and a seed."""

    algo: str
    flags: tuple[str, ...]
    seed: int

    @property
    def name(self) -> str:
        """`real --algo.real.tau 0.1` with seed 2 -> real-tau-0.1-s2"""
        words = (re.sub(r"^--(?:.*\.)?", "", word) for word in self.flags)
        return "-".join([self.algo, *(re.sub(r"[^\w.+=-]+", "_", word) for word in words), f"s{self.seed}"])


def entries(algos: Iterable[str], seeds: int, first_seed: int = 1, grid: Sequence[Sequence[str]] = ()) -> list[Entry]:
    """Seed by seed, so that a comparison that ends early has every algorithm in every cell of the grid."""
    methods = [tuple(shlex.split(text)) for text in algos]
    for flag, *values in grid:
        if not values:
            raise UserError(f"--grid {flag}: give its values, like --grid {flag} 1 2.")
    cells = list(itertools.product(*([(flag_name(flag), value) for value in values] for flag, *values in grid)))
    for algo, *_ in methods:
        if algo not in ALGORITHMS:
            raise UserError(f"--algos {algo}: not an algorithm. These are: {', '.join(ALGORITHMS)}.")
    runs = [
        Entry(algo, (*flags, *itertools.chain(*cell)), seed)
        for seed in range(first_seed, first_seed + seeds)
        for cell in cells
        for algo, *flags in methods
    ]
    if len({entry.name for entry in runs}) < len(runs):
        raise UserError("--algos or --grid names the same run twice. Remove one.")
    return runs


@dataclass(frozen=True)
class RunList:
    """What a comparison consists of; `evaluation` are the words of `real-openrlhf eval`, None for none."""

    entries: list[Entry]
    common: tuple[str, ...]
    out: Path
    evaluation: tuple[str, ...] | None

    @property
    def folder(self) -> Path:
        return (self.out / "runs").resolve()

    def path(self, entry: Entry) -> Path:
        return self.folder / entry.name

    def words(self, entry: Entry) -> list[str]:
        run = ["--algo", entry.algo, "--seed", str(entry.seed), "--run-name", entry.name, "--resume"]
        return [*run, *self.common, "--runs-dir", str(self.folder), *entry.flags]

    def request(self, entry: Entry, words: Sequence[str] | None = None) -> Request:
        return train_command.request_of(words or self.words(entry))

    def trained(self, entry: Entry) -> bool:
        path = self.path(entry)
        return (path / "run.json").exists() and run_folder.read(path)["status"] == "finished"
