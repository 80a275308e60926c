"""Expressions: the small tree of a formula. Its reading is in `grammar`, its values in `arithmetic` and `equality`."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Number:
    value: Fraction
    written: str = ""  # a decimal as it stands, with its digits


@dataclass(frozen=True)
class Symbol:
    name: str


@dataclass(frozen=True)
class Call:
    """`+ * / ^ -` and functions by their names; `name()` for functions that are only a name, such as `f`."""

    name: str
    args: tuple["Expr", ...]


Expr = Number | Symbol | Call


class Unreadable(Exception):
    """These tokens are no expression."""


class Unfinished(Unreadable):
    """A sum, an integral or a limit: its value is not looked for."""


CONSTANTS = {r"\pi": "pi", "e": "e", "i": "i", r"\infty": "infinity"}


def letters_of(expr: Expr) -> set[str]:
    """The names that have no value of their own."""
    if isinstance(expr, Symbol):
        return set() if expr.name in CONSTANTS.values() else {expr.name}
    if isinstance(expr, Number):
        return set()
    named = {expr.name} if expr.name.endswith("()") else set()
    return named.union(*map(letters_of, expr.args))
