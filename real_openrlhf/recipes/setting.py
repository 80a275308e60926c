"""The types of recipes: a flag's value with its origin, a recipe, an algorithm.

Standard library only. Text in “curly quotes” is the paper's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SET = "--algo.real.set"  # settings of an objective's own, NAME=VALUE words
PAPER, CODE, RECIPE, DERIVED, USER = "paper", "authors' code", "recipe", "derived", "user"


@dataclass(frozen=True)
class Setting:
    """One flag's value as the words after it (none for a switch), and where it comes from."""

    words: tuple[str, ...]
    origin: str
    note: str = ""

    @classmethod
    def of(cls, origin: str, value: str, note: str = "") -> "Setting":
        return cls(tuple(value.split()), origin, note)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def paper(value: str, note: str) -> Setting:
    return Setting.of(PAPER, value, note)


def code(value: str, note: str) -> Setting:
    return Setting.of(CODE, value, note)


def own(value: str, note: str = "") -> Setting:
    return Setting.of(RECIPE, value, note)


@dataclass(frozen=True)
class Recipe:
    """A model, its data and everything that is the same for every algorithm."""

    name: str
    about: str
    model: str
    train_data: str
    eval_data: str
    settings: Mapping[str, Setting]
    reward: str = "math_reward"  # a file in rewards/
    gpus: int = 8
    gpu_gb: float = 80.0  # of each GPU, where a dry run cannot ask it
    on_cpu: bool = False  # runs on a machine without a GPU, where Ray is given logical ones


@dataclass(frozen=True)
class Algorithm:
    """The flags of one method, and its description."""

    name: str
    label: str  # in figures and tables
    about: str
    source: str  # where it is from
    settings: Mapping[str, Setting]
    family: str = ""  # whose objective it trains; none for OpenRLHF's own losses
