"""An answer as a tree: numbers with units, names, lists, tuples, intervals, matrices, relations, words, choices."""

from dataclasses import dataclass, field

from real_openrlhf.rewards.verifier.reading.expression import Expr, Symbol
from real_openrlhf.rewards.verifier.reading.tex import Tokens
from real_openrlhf.rewards.verifier.reading.units import Unit


@dataclass(frozen=True)
class Quantity:
    """An expression, and its unit where it has one."""

    value: Expr
    unit: Unit | None = None


@dataclass(frozen=True)
class Text:
    """Words, or what cannot be read: equal to the same text only."""

    text: str
    readable: bool = True  # false: this looks like mathematics, and another spelling of it may be right


@dataclass(frozen=True)
class Named:
    """`x = 3`, `\\text{Area} = 5`, `A(7,1)`: the name may be left out."""

    name: Tokens
    value: "Answer"


@dataclass(frozen=True)
class Row:
    """A tuple, point or interval: order and brackets count. A matrix has its shape for brackets."""

    brackets: str
    items: tuple["Answer", ...]


@dataclass(frozen=True)
class Group:
    """A set, list of solutions or union: the order does not count."""

    items: tuple["Answer", ...]
    alternatives: bool = field(default=False, compare=False)  # `or` stands between them
    braced: bool = field(default=False, compare=False)  # then it is no tuple without its parentheses


@dataclass(frozen=True)
class Relation:
    """`sign` between two sides that are no name and value: = \\le < \\ne \\in and others."""

    sign: str
    sides: tuple["Answer", "Answer"]


@dataclass(frozen=True)
class Bounded:
    """An inequality of one letter: the interval it says, with the letter."""

    name: str
    interval: "Row | Group"


@dataclass(frozen=True)
class Ratio:
    """`1:2:3`, equal up to a factor; `9:45 a.m.` where it can be a time."""

    parts: tuple[Expr, ...]
    time: tuple[int, ...] = ()
    half: str = ""


@dataclass(frozen=True)
class Choice:
    letter: str
    value: "Answer | None" = None


@dataclass(frozen=True)
class Based:
    """`2301_4`: digits in a base, which the question fixes."""

    digits: str
    base: int


@dataclass(frozen=True)
class Either:
    """One value in several spellings, such as `\\sqrt{2} \\approx 1.41`: exact first."""

    forms: tuple["Answer", ...]


@dataclass(frozen=True)
class Conditioned:
    """`6 \\text{ at } x = 1`, `x+5, x \\ne 2`: the condition may be left out, not changed."""

    value: "Answer"
    condition: Tokens


Answer = Quantity | Text | Named | Row | Group | Relation | Bounded | Ratio | Choice | Based | Either | Conditioned


INFINITY = Symbol("infinity")
