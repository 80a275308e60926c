"""The runs of a comparison: algorithms with their own flags, cells of a grid, seeds; each named by these."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import flag_name, words_of
from real_openrlhf.base.secrets import hide
from real_openrlhf.recipes.algorithms import method_of
from real_openrlhf.training import command as train_command


@dataclass(frozen=True)
class Entry:
    """One run of the comparison: an algorithm with its own flags, and a seed."""

    algo: str
    flags: tuple[str, ...]
    seed: int

    @property
    def name(self) -> str:
        """`real --algo.real.tau 0.1` with seed 2 -> real-tau-0.1-s2; files of this folder have one name."""
        words = (word.removeprefix(f"{Path.cwd()}/").removeprefix("./") for word in self.flags)
        words = (re.sub(r"^--(?:.*\.)?", "", word) for word in words)
        return "-".join([self.algo, *(re.sub(r"[^\w.+=-]+", "_", word) for word in words), f"s{self.seed}"])

    def without(self, flags: Sequence[str]) -> "Entry":
        """Of the grid's flags, each with its one value at the end."""
        pairs = zip(self.flags, self.flags[1:], strict=False)
        gone = {place + step for place, (word, _) in enumerate(pairs) if word in flags for step in (0, 1)}
        return replace(self, flags=tuple(word for place, word in enumerate(self.flags) if place not in gone))


def entries(algos: Iterable[str], seeds: int, first_seed: int = 1, grid: Sequence[Sequence[str]] = ()) -> list[Entry]:
    """All runs, seed by seed: a comparison that ends early has every algorithm in every cell of the grid."""
    methods = [words for text in algos if (words := words_of("--algos", text))]
    if not methods or any(len(values) < 2 or not values[0] for values in grid):
        raise UserError("--algos or --grid is empty. Type --algos real, or --grid actor.adam.lr 1e-4 1e-3.")
    if any(hide(words) != [*words] for words in (*methods, *grid)):
        raise UserError("--algos and --grid make the runs' names, and a secret is in them. Give its flag apart.")
    methods = [[*method_of("--algos", name), *flags] for name, *flags in methods]
    cells = [*itertools.product(*([(flag_name(flag), value) for value in values] for flag, *values in grid))]
    runs = [
        Entry(algo, (*flags, *itertools.chain(*cell)), seed)
        for seed in range(first_seed, first_seed + seeds)
        for cell in cells
        for algo, *flags in methods
    ]
    if twice := [name for name, count in Counter(entry.name for entry in runs).items() if count > 1]:
        raise UserError(f"--algos or --grid names {twice[0]} twice. Remove one, or spell it otherwise: 0.10 for 0.1.")
    return runs


def once_each(every: Sequence[Entry], common: Sequence[str], grid: Sequence[str]) -> list[Entry]:
    """The runs without the grid's flags that they do not read: a method is trained once, not at each value."""
    unread: dict[tuple, list[str]] = {}
    for entry in every if grid else ():
        key = entry.algo, entry.flags
        if key not in unread:
            run = train_command.request_of(["--algo", entry.algo, *common, *entry.flags]).run
            unread[key] = [flag for flag in grid if flag in run.unread]
    if nobodys := [flag for flag in grid if all(flag in flags for flags in unread.values())]:
        raise UserError(f"--grid {nobodys[0]}: none of these methods reads it. Leave it out.")
    return [*dict.fromkeys(entry.without(unread.get((entry.algo, entry.flags), ())) for entry in every)]
