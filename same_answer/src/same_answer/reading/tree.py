"""Types of trees: of a formula (`arithmetic` evaluates it), and of the answer around it."""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from same_answer.reading.tex import Tokens, untokenize
from same_answer.reading.units import Unit


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


class NoExpression(Exception):
    """These tokens are no expression."""


FLAT = ("+", "*")
CONSTANTS = {r"\pi": "pi", "e": "e", "i": "i", r"\infty": "infinity"}


def letters_of(expr: Expr) -> set[str]:
    """The names of letters and unknown functions in an expression, without constants."""
    if isinstance(expr, Symbol):
        return set() if expr.name in CONSTANTS.values() else {expr.name}
    if isinstance(expr, Number):
        return set()
    named = {expr.name} if expr.name.endswith("()") else set()
    return named.union(*map(letters_of, expr.args))


def names_of(expr: Expr, kind: type[Call] | type[Symbol]) -> set[str]:
    """The names of functions and operations, or of letters and constants, in an expression."""
    own = {expr.name} if isinstance(expr, kind) else set()
    return own.union(*(names_of(arg, kind) for arg in expr.args)) if isinstance(expr, Call) else own


def parts(expr: Expr) -> list[Expr]:
    """All terms of a sum, all factors of a product, else the arguments."""
    if not isinstance(expr, Call):
        return []
    if expr.name not in FLAT:
        return [*expr.args]
    nested = (parts(arg) if isinstance(arg, Call) and arg.name == expr.name else [arg] for arg in expr.args)
    return [part for pieces in nested for part in pieces]


def form(expr: Expr) -> str:
    """An expression as text, in one order of its terms and factors."""
    if not isinstance(expr, Call):
        return str(expr.value if isinstance(expr, Number) else expr.name)
    args = map(form, parts(expr))
    return f"{expr.name}({','.join(sorted(args) if expr.name in FLAT else args)})"


@dataclass(frozen=True)
class Text:
    """Words, or tokens that cannot be read; equal only to the same text."""

    text: str
    readable: bool = True  # false: this looks like mathematics, and another spelling of it may be right


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
    sign: str = ""  # a comma or `\\cup` between `(1,2)` and `(3,4)`, which are points or intervals


@dataclass(frozen=True)
class Relation:
    """`sign` between two sides that are no name and value: = \\le < \\ne \\in and others."""

    sign: str
    sides: tuple["Answer", "Answer"]


@dataclass(frozen=True)
class Ratio:
    """`1:2:3`, equal up to a factor; `9:45 a.m.` where it can be a time."""

    parts: tuple[Expr, ...]
    time: tuple[int, ...] = ()
    half: str = ""


@dataclass(frozen=True)
class Either:
    """One answer in several forms, such as `\\sqrt{2} \\approx 1.41`: exact first. Each form has its own labels."""

    forms: tuple["Answer", ...]
    all_hold: bool = field(default=False, compare=False)  # `x (or y)`: no form may say something else


@dataclass(frozen=True)
class Answer:
    """A value and its labels. A label may be left out, not changed."""

    value: Expr | Text | Row | Group | Relation | Ratio | Either
    name: Tokens = ()  # `x = 3`, `\text{Area} = 5`, `A(7,1)`
    bounds: str = ""  # the letter that an inequality bounds; the value is its interval
    condition: tuple[str, ...] = ()  # `6 \text{ at } x = 1`, `x+5, x \ne 2`: the last one first
    letter: str = ""  # of a choice, which is also the value if nothing else is said
    base: int = 0  # `2301_4`: the question fixes it
    unit: Unit | None = None

    @property
    def bare(self) -> bool:
        """Whether a value stands alone, but for a unit."""
        return not (self.name or self.bounds or self.condition or self.letter or self.base)


def labelled(answer: Answer, name: Tokens = (), condition: tuple[str, ...] = (), letter: str = "") -> Answer:
    """The answer with more labels, outside those that it has."""
    if isinstance(answer.value, Either):
        forms = tuple(labelled(one, name, condition, letter) for one in answer.value.forms)
        return Answer(replace(answer.value, forms=forms))
    letter = letter or ("" if name else answer.letter)  # behind a name, a letter is a symbol
    return replace(answer, name=(*name, *answer.name), condition=(*condition, *answer.condition), letter=letter)


def either(*forms: Answer, all_hold: bool = False) -> Answer:
    """Several forms as one answer, flat: nested forms would be compared once for each subset of them."""
    all_hold |= any(isinstance(form.value, Either) and form.value.all_hold for form in forms)
    flat = [one for form in forms for one in (form.value.forms if isinstance(form.value, Either) else (form,))]
    forms = tuple(dict.fromkeys(flat))
    return Answer(Either(forms, all_hold)) if len(forms) > 1 else forms[0]


def quantity(answer: Answer) -> Expr | None:
    """The expression of an answer that is one, with or without a unit."""
    return answer.value if isinstance(answer.value, Expr) and answer.bare else None


def form_of(answer: Answer) -> str:
    """An answer of any kind as text."""
    value = quantity(answer)
    return str(answer) if value is None else form(value)


def core(answer: Answer) -> Answer:
    """An answer without its name, condition or letter of a choice."""
    alone = answer.value == Symbol(answer.letter)
    return replace(answer, name=(), condition=(), letter=answer.letter if alone else "")


def as_text(parts: Tokens) -> Answer:
    """Tokens that look like mathematics and cannot be read."""
    return Answer(Text(untokenize(parts), False))


INFINITY = Symbol("infinity")
LOW, HIGH = Answer(Call("-", (INFINITY,))), Answer(INFINITY)
REALS, NOTHING = Answer(Row("()", (LOW, HIGH))), Answer(Text("emptyset"))
