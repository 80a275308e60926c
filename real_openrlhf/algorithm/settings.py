"""The objective that a run trains with, found by its name, and its settings. It needs no torch, as its formula."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from real_openrlhf.algorithm.formulas import OBJECTIVES, Objective, TokenLoss
from real_openrlhf.base.user_files import example_of, file_of, functions_of, load


def assignments(words: Iterable[str] | None) -> dict[str, str]:
    """Parse NAME=VALUE words, as of --algo.real.set, into {name: value}."""
    pairs = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not (name and equals and value):
            raise ValueError(f"{word!r} is not NAME=VALUE. Use for example eta=0.5")
        pairs[name] = value
    return pairs


def given_settings(flags: Any) -> dict[str, Any]:
    """The settings that --algo.real.tau and --algo.real.set give, by name."""
    words = assignments(flags.set)
    if "tau" in words:
        raise ValueError("tau has a flag of its own. Use --algo.real.tau")
    return words if flags.tau is None else {"tau": flags.tau} | words


def find(name: str | Objective) -> Objective:
    """The objective, or a ValueError that says in one line why there is none."""
    if isinstance(name, Objective):
        return name
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    if (path := file_of(name)) is None:
        known = f"{example_of(name)}Choose one of {', '.join(OBJECTIVES)}, or your own, FILE.py:NAME"
        raise ValueError(f"unknown objective {name!r}. {known}, as in examples/objectives of the repository")
    loaded, own = load(name), name.rpartition(":")[2]
    if isinstance(loaded, Objective):
        return loaded
    if not callable(loaded):
        raise ValueError(f"{own!r} is no function of {path}, which has: {', '.join(functions_of(path)) or 'none'}")
    first, *_ = (loaded.__doc__ or "").strip().splitlines() or [""]
    # a token loss has (log_ratio, advantage, mask, group); a default may be a constant of the user's own
    parameters = inspect.signature(loaded).parameters.values()
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    kind = TokenLoss if len(needed) == 4 else Objective
    return kind(loaded, label=own, about=first, source=str(path))


@dataclass(frozen=True)
class ObjectiveSettings:
    """An objective and its constants.

    `name` is a key of `OBJECTIVES`, FILE.py:NAME for a function in the user's file, or an `Objective`.
    """

    name: str | Objective = "real"
    uniform_groups: str = "zero_loss"
    settings: Mapping[str, Any] = field(default_factory=dict)  # of this objective; missing ones and None take defaults

    def __post_init__(self) -> None:
        if self.uniform_groups not in ("zero_loss", "keep"):
            raise ValueError(f"uniform_groups is {self.uniform_groups!r}: choose zero_loss or keep")
        given = {name: value for name, value in self.settings.items() if value is not None}
        object.__setattr__(self, "settings", self.objective.constants(given))

    @cached_property
    def objective(self) -> Objective:
        return find(self.name)

    def __getitem__(self, name: str) -> Any:
        """The value of a setting that the objective defines."""
        if name not in self.settings:
            raise ValueError(f"the objective reads {name}, and its `settings` do not have it. Add it there")
        return self.settings[name]

    @property
    def tau(self) -> Any:
        return self["tau"]

    @property
    def score(self) -> str:
        """The kind of score, one of `SCORES`."""
        return self.settings.get("score", self.objective.score)

    def denominator(self, num_groups: int, num_rollouts: int) -> int:
        """Of an update's mean: its valid rollouts for the authors' BCE, for everything else its prompt groups."""
        return max(num_rollouts if self.settings.get("reduction") == "mean" else num_groups, 1)
