"""Types of trees: of a formula (`arithmetic` and `equality` evaluate it), and of the answer around it."""

from dataclasses import dataclass, field
from fractions import Fraction

from real_openrlhf.verifier.reading.tex import Tokens
from real_openrlhf.verifier.reading.units import Unit


@dataclass(frozen=True)
class Number:
    value: Fraction
    written: str = ""  # a decimal as it was written, with all digits


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


CONSTANTS = {r"\pi": "pi", "e": "e", "i": "i", r"\infty": "infinity"}


def letters_of(expr: Expr) -> set[str]:
    """The names of letters and unknown functions in an expression, without constants."""
    if isinstance(expr, Symbol):
        return set() if expr.name in CONSTANTS.values() else {expr.name}
    if isinstance(expr, Number):
        return set()
    named = {expr.name} if expr.name.endswith("()") else set()
    return named.union(*map(letters_of, expr.args))


@dataclass(frozen=True)
class Quantity:
    """An expression, and its unit where it has one."""

    value: Expr
    unit: Unit | None = None


@dataclass(frozen=True)
class Text:
    """Words, or tokens that cannot be read; equal only to the same text."""

    text: str
    readable: bool = True  # false: this looks like mathematics, and another spelling of it may be right


@dataclass(frozen=True)
class Named:
    """`x = 3`, `\\text{Area} = 5`, `A(7,1)`: the name may be left out."""

    name: Tokens
    value: "Answer"


@dataclass(frozen=True)
class Row:
    """A tuple, point or interval: order and brackets count. For a matrix `brackets` is its shape."""

    brackets: str
    items: tuple["Answer", ...]


@dataclass(frozen=True)
class Group:
    """A set, list of solutions or union: the order does not count."""

    items: tuple["Answer", ...]
    alternatives: bool = field(default=False, compare=False)  # `or` stands between them
    braced: bool = field(default=False, compare=False)  # written in braces, so not a tuple without parentheses


@dataclass(frozen=True)
class Relation:
    """`sign` between two sides that are no name and value: = \\le < \\ne \\in and others."""

    sign: str
    sides: tuple["Answer", "Answer"]


@dataclass(frozen=True)
class Bounded:
    """An inequality of one letter: the letter and its interval."""

    label: str
    value: "Answer"


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
    label: str


Answer = Quantity | Text | Named | Row | Group | Relation | Bounded | Ratio | Choice | Based | Either | Conditioned


def core(answer: Answer) -> Answer:
    """An answer without its name, condition or letter of a choice."""
    if isinstance(answer, Choice) and answer.value is not None:
        return core(answer.value)
    return core(answer.value) if isinstance(answer, Named | Conditioned) else answer


INFINITY = Symbol("infinity")
LOW, HIGH = Quantity(Call("-", (INFINITY,))), Quantity(INFINITY)
REALS, NOTHING = Row("()", (LOW, HIGH)), Text("emptyset")
