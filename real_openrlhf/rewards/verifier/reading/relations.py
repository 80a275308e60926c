"""Equations, memberships and inequalities: names with values, intervals of a letter, and other relations."""

from collections.abc import Callable

from real_openrlhf.rewards.verifier.reading.answer import (
    INFINITY,
    Answer,
    Bounded,
    Group,
    Named,
    Quantity,
    Relation,
    Text,
)
from real_openrlhf.rewards.verifier.reading.cutting import (
    is_measure,
    is_name,
    is_name_row,
    sides_and_signs,
)
from real_openrlhf.rewards.verifier.reading.expression import Call, Symbol, letters_of
from real_openrlhf.rewards.verifier.reading.merging import (
    as_interval,
    beyond,
    complement,
)
from real_openrlhf.rewards.verifier.reading.quantities import (
    expr_of,
    name_of,
)
from real_openrlhf.rewards.verifier.reading.tex import Tokens, closing, plain

Read = Callable[[Tokens], Answer]  # what reads a part of an answer
_REVERSED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}


def related(parts: Tokens, answer: Read) -> Answer | None:
    """Names with values, memberships, inequalities of a letter as intervals, and other relations."""
    pieces, signs = sides_and_signs(parts)
    if not signs or not all(pieces):
        return None
    if r"\Rightarrow" in signs:
        return answer(pieces[-1])
    if set(signs) == {"="}:
        return _equation(pieces, answer)
    if signs == [r"\in"]:
        if len(pieces[0]) == 1 or is_name(pieces[0]) or is_name_row(pieces[0]) or is_measure(pieces[0]):
            inner = answer(pieces[1])
            if is_name_row(pieces[0]):
                return Named(pieces[0], inner)
            return (
                inner
                if not isinstance(inner, Text) or not inner.readable
                else Relation(r"\in", (answer(pieces[0]), inner))
            )
    if set(signs) <= {"<", r"\le"} or set(signs) <= {">", r"\ge"}:
        return _inequality(pieces, signs, answer)
    if signs == [r"\ne"]:
        name = name_of(pieces[0])
        if not name:
            pieces, name = pieces[::-1], name_of(pieces[1])
        points = answer(pieces[1])
        if name and (isinstance(points, Group) or not letters_of(expr_of(pieces[1]) or Symbol("x"))):
            apart = complement(points)
            return Bounded(name, apart) if isinstance(apart, Group) else None
    if signs[-1] == r"\approx":
        return None
    if len(signs) == 1:
        return Relation(signs[0], (answer(pieces[0]), answer(pieces[1])))
    return Text(plain(parts), False)


def _equation(pieces: list[Tokens], answer: Read) -> Answer:
    first, last = pieces[0], pieces[-1]
    value = answer(last)
    if len(pieces) == 2 and name_of(last) and not is_name(first):
        first, last, value = last, first, answer(first)  # 5 = x
    above, below = _quotient(first)
    if is_name(first) or is_name_row(first) or name_of(first) or (is_name(above) and is_name(below)):
        return Named(first, value)
    numeric = [piece for piece in pieces if not letters_of(expr_of(piece) or Symbol("x"))]
    if len(numeric) == len(pieces):
        return value  # 0.56 = 56\%: spellings of one value
    if (is_measure(first) or is_measure(above)) and len(numeric) == len(pieces) - 1:
        return Named(first, value)
    if len(pieces) == 2 or len(numeric) == len(pieces) - 1:
        return Relation("=", (answer(first), value))
    return Text("=".join(map(plain, pieces)), False)


def _quotient(parts: Tokens) -> tuple[Tokens, Tokens]:
    """What stands above and below a fraction that is the whole; nothing where there is none."""
    middle = closing(parts, 1) if parts[0].text == r"\frac" else -1
    if middle < 0 or closing(parts, middle + 1) != len(parts) - 1:
        return (), ()
    return parts[2:middle], parts[middle + 2 : -1]


def _inequality(pieces: list[Tokens], signs: list[str], answer: Read) -> Answer:
    if signs[0] in (">", r"\ge"):
        pieces, signs = pieces[::-1], [_REVERSED[sign] for sign in signs[::-1]]
    low, high = Quantity(Call("-", (INFINITY,))), Quantity(INFINITY)
    if len(pieces) == 3 and (name := name_of(pieces[1])):
        ends = (answer(pieces[0]), answer(pieces[2]))
        return Bounded(name, as_interval("(" if signs[0] == "<" else "[", ")" if signs[1] == "<" else "]", ends))
    if len(pieces) == 2:
        for at in (0, 1):
            size, bound = expr_of(pieces[at]), pieces[1 - at]
            if isinstance(size, Call) and size.name == "abs" and isinstance(size.args[0], Symbol):
                return beyond(size.args[0].name, answer(bound), signs[0] == r"\le", at == 1)
        for at, (side, other) in enumerate(((pieces[0], pieces[1]), (pieces[1], pieces[0]))):
            name = name_of(side)
            if name and name not in letters_of(expr_of(other) or Symbol(name)):
                closed = signs[0] == r"\le"
                if at == 0:
                    return Bounded(name, as_interval("(", "]" if closed else ")", (low, answer(other))))
                return Bounded(name, as_interval("[" if closed else "(", ")", (answer(other), high)))
        return Relation(signs[0], (answer(pieces[0]), answer(pieces[1])))
    return Text("".join(f"{plain(piece)}{sign}" for piece, sign in zip(pieces, [*signs, ""], strict=True)), False)
