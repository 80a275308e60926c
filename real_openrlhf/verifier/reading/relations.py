"""Equations, inequalities and memberships; and several answers as one: lists, unions, complements."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from real_openrlhf.verifier.arithmetic import NoFraction, NotRational, exact
from real_openrlhf.verifier.reading.cutting import is_measure, is_name, is_name_row, sides_and_signs
from real_openrlhf.verifier.reading.quantities import expr_of, is_numeric, name_of
from real_openrlhf.verifier.reading.tex import Tokens, closing, untokenize
from real_openrlhf.verifier.reading.tree import (
    HIGH,
    LOW,
    NOTHING,
    REALS,
    Answer,
    Group,
    Relation,
    Row,
    Symbol,
    Text,
    as_text,
    labelled,
    letters_of,
    quantity,
)

Read = Callable[[Tokens], Answer]  # a function that reads a part of an answer
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
                return labelled(inner, name=pieces[0])
            if not isinstance(inner.value, Text) or not inner.value.readable:
                return inner
    if set(signs) <= {"<", r"\le"} or set(signs) <= {">", r"\ge"}:
        return _inequality(pieces, signs, answer)
    if signs == [r"\ne"]:
        name = name_of(pieces[0])
        if not name:
            pieces, name = pieces[::-1], name_of(pieces[1])
        points = answer(pieces[1])
        if name and (isinstance(points.value, Group) or is_numeric(pieces[1])):
            apart = complement(points)
            return replace(apart, bounds=name) if apart else None
    if signs[-1] == r"\approx":
        return None
    if len(signs) == 1:
        return Answer(Relation(signs[0], (answer(pieces[0]), answer(pieces[1]))))
    return as_text(parts)


def _equation(pieces: list[Tokens], answer: Read) -> Answer:
    first, last = pieces[0], pieces[-1]
    value = answer(last)
    if len(pieces) == 2 and name_of(last) and not (is_name(first) or is_measure(first)):
        first, last, value = last, first, answer(first)  # 5 = x
    above, below = _quotient(first)
    if is_name(first) or is_name_row(first) or name_of(first) or (is_name(above) and is_name(below)):
        return labelled(value, name=first)
    if all(map(is_numeric, pieces)):
        return value  # 0.56 = 56\%: spellings of one value
    if len(pieces) > 2 and (len(untokenize(last)) > 1 and is_measure(last) or all(map(is_name, pieces))):
        return Answer(Text("=".join(map(untokenize, pieces)), False))  # AB = BC = CA
    measured = any(is_measure((token,)) and len(token.text) > 1 for token in last)  # AB = 2CD
    if len(pieces) > 2 or (is_measure(first) and not measured) or (is_measure(above) and is_numeric(last)):
        return labelled(value, name=first)
    return Answer(Relation("=", (answer(first), value)))


def _quotient(parts: Tokens) -> tuple[Tokens, Tokens]:
    """Numerator and denominator if the tokens are one fraction; else nothing."""
    middle = closing(parts, 1) if parts[0].text == r"\frac" else -1
    if middle < 0 or closing(parts, middle + 1) != len(parts) - 1:
        return (), ()
    return parts[2:middle], parts[middle + 2 : -1]


def _inequality(pieces: list[Tokens], signs: list[str], answer: Read) -> Answer:
    if signs[0] in (">", r"\ge"):
        pieces, signs = pieces[::-1], [_REVERSED[sign] for sign in signs[::-1]]
    if len(pieces) == 3 and (name := name_of(pieces[1])):
        ends = (answer(pieces[0]), answer(pieces[2]))
        return as_interval("(" if signs[0] == "<" else "[", ")" if signs[1] == "<" else "]", ends, name)
    if len(pieces) > 2:
        said = "".join(f"{untokenize(one)}{sign}" for one, sign in zip(pieces, [*signs, ""], strict=True))
        return Answer(Text(said, False))
    closed = signs[0] == r"\le"
    for at, side in enumerate(pieces):
        name, other = name_of(side), pieces[1 - at]
        if name and name not in letters_of(expr_of(other) or Symbol(name)):
            ends = (LOW, answer(other)) if at == 0 else (answer(other), HIGH)
            return as_interval("[" if closed else "(", "]" if closed else ")", ends, name)
    return Answer(Relation(signs[0], (answer(pieces[0]), answer(pieces[1]))))


def as_group(items: list[Answer], alternatives: bool = False, braced: bool = False) -> Answer:
    flat: list[Answer] = []
    for item in items:
        for one in item.value.items if isinstance(item.value, Group) and item.bare else (item,):
            # A repeated solution counts once; repeated plain numbers all count, because they may be multiple roots.
            if one not in flat or quantity(one) is not None:
                flat.append(one)
    if len(flat) == 1:
        return flat[0]
    first = flat[0]
    names = [untokenize(item.name) for item in flat]
    if all(len(name) == 1 for name in names) and len(set(names)) == len(names):
        flat = [item for _, item in sorted(zip(names, flat, strict=True), key=lambda pair: pair[0])]
    if first.name and not isinstance(first.value, Row) and not any(names[1:]):
        flat[0] = replace(first, name=())  # a = 4, -8, -10
    return Answer(Group(tuple(flat), alternatives, braced))


def as_interval(opening: str, closing_: str, ends: tuple[Answer, ...], bounds: str = "") -> Answer:
    opening = "(" if ends[0] == LOW else opening
    return Answer(Row(opening + (")" if ends[-1] == HIGH else closing_), ends), bounds=bounds)


def joint(items: list[Answer], said: set[str]) -> Answer | None:
    """`x \\ge 1 and x < 9` is one interval; `x > 0, x \\ne 1` and `x \\ne 0, 1` lack points. None for other items."""
    first = items[0]
    if not first.bounds or "or" in said:
        return None
    sets: list[Answer] = []
    for item in items:
        if item == Answer(item.value, bounds=first.bounds):
            sets.append(Answer(item.value))
        elif quantity(item) is not None and isinstance(first.value, Group):
            sets.append(outside(item))
        else:
            return None
    rows = [one.value for one in sets if isinstance(one.value, Row)]
    if len(rows) > 1 and not ("and" in said and all(LOW in row.items or HIGH in row.items for row in rows)):
        return None  # two intervals side by side
    common = intersection(sets)
    return replace(common, bounds=first.bounds) if common and common != NOTHING else common


def intersection(sets: Sequence[Answer]) -> Answer | None:
    """The intersection of intervals and unions of intervals; None if an end has no exact value."""
    first, *others = [one for one in sets if one != REALS] or [REALS]
    try:
        for other in others:
            pairs = ((row, beside) for row in _rows(first) for beside in _rows(other))
            first = _union([both for row, beside in pairs if (both := _overlap(row, beside))])
    except NoFraction:
        return None
    return first


def outside(of: Answer) -> Answer:
    """The real numbers without a point or an interval."""
    row = _interval(of) or Row("[]", (of, of))
    below = as_interval("(", ")" if row.brackets[0] == "[" else "]", (LOW, row.items[0]))
    above = as_interval("(" if row.brackets[1] == "]" else "[", ")", (row.items[1], HIGH))
    return _union([side for side in (below, above) if len({*_rows(side)[0].items}) == 2])


def complement(of: Answer) -> Answer | None:
    """The real numbers without a point, an interval or several of them."""
    return intersection([*map(outside, of.value.items if isinstance(of.value, Group) else (of,))])


def _union(intervals: list[Answer]) -> Answer:
    return Answer(Group(tuple(intervals))) if len(intervals) > 1 else intervals[0] if intervals else NOTHING


def _interval(side: Answer) -> Row | None:
    row = side.value
    return row if isinstance(row, Row) and side.bare and row.brackets[0] in "([" and len(row.items) == 2 else None


def _rows(side: Answer) -> list[Row]:
    items = side.value.items if isinstance(side.value, Group) else (side,)
    rows = [*filter(None, map(_interval, items))]
    if len(rows) < len(items):
        raise NotRational
    return rows


def _overlap(one: Row, other: Row) -> Answer | None:
    starts, ends = ([(row.items[at], row.brackets[at]) for row in (one, other)] for at in (0, 1))
    low, opening = max(starts, key=lambda end: (_position(end[0]), end[1] == "("))
    high, closing = min(ends, key=lambda end: (_position(end[0]), end[1] == "]"))
    return Answer(Row(opening + closing, (low, high))) if _position(low) < _position(high) else None


def _position(end: Answer) -> Fraction | float:
    value = quantity(end)
    if value is None:
        raise NotRational
    return -math.inf if end == LOW else math.inf if end == HIGH else exact(value)
