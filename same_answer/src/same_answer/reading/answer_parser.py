"""From tokens to the tree of an answer. All spellings are resolved here: `compare` never looks at text."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from same_answer.arithmetic import NoFraction, NotRational, differ, exact, is_number
from same_answer.reading.budget import READING
from same_answer.reading.cutting import (
    RELATIONS,
    find,
    is_measure,
    is_name,
    is_name_row,
    is_words,
    listing,
    opened,
    sides_and_signs,
    split,
    texts_of,
    trimmed,
)
from same_answer.reading.grammar import UNFINISHED, expression
from same_answer.reading.quantities import (
    expr_of,
    is_numeric,
    name_of,
    read_based,
    read_compound,
    read_quantity,
    read_time,
    read_words,
)
from same_answer.reading.tex import Token, Tokens, clean, closing, tokens, untokenize
from same_answer.reading.tree import (
    HIGH,
    LOW,
    NOTHING,
    REALS,
    Answer,
    Call,
    Expr,
    Group,
    NoExpression,
    Number,
    Ratio,
    Relation,
    Row,
    Symbol,
    Text,
    as_text,
    either,
    labelled,
    letters_of,
    names_of,
    quantity,
)
from same_answer.reading.units import unit
from same_answer.reading.words import CONDITION, EXCLUDING, NEGATING, denies

_CONNECTING = (*CONDITION, "all", "any", "every", "each", "some", ",", ")", r"\forall")
_BOUNDING = {r"\in", r"\ne", r"\le", r"\ge", "<", ">"}
_REVERSED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_OPERATORS = (r"\mathbb{E}", r"\mathbb", r"\min", r"\max", r"\sup", r"\inf", r"\Pr")
_MATRICES = ("matrix", "pmatrix", "bmatrix", "vmatrix", "Bmatrix", "smallmatrix", "array")


@lru_cache(maxsize=4096)
def parse_answer(text: str) -> Answer:
    """The tree of an answer's text."""
    return answer_of(opened(tokens(clean(text))))


@READING.of
def answer_of(parts: Tokens) -> Answer:
    parts = trimmed(parts)
    return next(
        filter(None, (sense(parts) for sense in (_choice, _conditioned, read_compound, _approximated, _listed, _item)))
    )


def _choice(parts: Tokens) -> Answer | None:
    """`(A) 30`, `A. 30`, `\\text{Option A}`, `(A)`, or a single letter."""
    texts = texts_of(parts)
    if len(texts) > 1 and texts[0].lower() in ("option", "choice", "answer"):
        texts, parts = texts[1:], parts[1:]
    if len(texts) == 1 and re.fullmatch("[A-Z]", texts[0]):
        return Answer(Symbol(texts[0]), letter=texts[0])
    bracketed = len(texts) > 2 and texts[0] == "(" and texts[2] == ")"
    letter = texts[1] if bracketed else texts[0] if texts else ""
    if not re.fullmatch("[A-Z]", letter):
        return None
    if texts[1:2] == [":"] and any(texts_of(trimmed(piece))[1:2] == [":"] for piece in split(parts, ",", ";")[1:]):
        return None  # A: 1, B: 2
    rest = parts[3:] if bracketed else parts[2:] if texts[1:2] in ([")"], ["."], [":"]) else None
    if rest is None or (rest and not bracketed and not rest[0].spaced and texts[1] == "."):
        return None
    if not rest:
        return Answer(Symbol(letter), letter=letter)
    if rest[0].text.lower() in ("is", "was") and denies(texts_of(rest)):
        return as_text(parts)  # (A) is wrong
    if letter in "ABCDE" and _names_a_choice(rest):
        return None if rest[0].text.lower() in (",", "and", "or") else as_text(parts)
    if letter not in "ABCDE" or (rest[0].kind == "sign" and rest[0].text not in ("(", "[", "-", "{", r"\{")):
        return None
    return labelled(answer_of(trimmed(rest)), letter=letter)


def _names_a_choice(rest: Tokens) -> bool:
    """Whether another choice stands behind the first: `or (B)`, `(B) (C)`, `B. C.`, but not `Both B and C`, `P(A)`."""
    texts = texts_of(rest)
    joints = ("and", "or", "not", "/")
    joined = texts[0].lower() in joints
    if re.fullmatch("[A-E]", texts[joined] if len(texts) > joined else "") and (joined or texts[1:2] == ["."]):
        return True
    if {"both", "neither", "all", "none", "only"} & {*map(str.lower, texts)}:
        return False
    choices = (at for at in range(len(texts) - 2) if re.fullmatch(r"\([A-E]\)", "".join(texts[at : at + 3])))
    applied = ("letters", "command")  # P(A)
    return any(at == 0 or texts[at - 1] in joints or rest[at - 1].kind not in applied for at in choices)


def _conditioned(parts: Tokens) -> Answer | None:
    """A condition behind a value: after `for`, `at`, `where`; `, x \\ne 2`; `(n \\ge 1)`; `k \\in \\mathbb{Z}`."""
    at = find(parts, _begins_condition, 1)
    if at > 0 and not is_words(parts):
        cases = [piece for piece in split(parts, ",", ";", "and", "or") if find(piece, _begins_condition, 1) > 0]
        if len(cases) > 1 or {"otherwise", "else", "then", "but"} & {*texts_of(parts)}:
            return as_text(parts)  # a value for each case
        if denies(texts_of(parts[at:])):
            return as_text(parts)
        value = trimmed(parts[:at])
        value = value[:-1] if texts_of(value)[-1:] == ["("] else value
        condition = _condition(token for token in parts[at:] if token.text.lower() not in _CONNECTING)
        return labelled(answer_of(value), condition=condition)
    before, inside = _appended(parts)
    if before and inside and before[-1].text != "," and (_bounds(inside) or _begins_condition(inside[0])):
        denied = denies(texts_of(inside))
        return as_text(parts) if denied else labelled(answer_of(before), condition=_condition(inside))
    *pieces, last = split(parts, ",", ";")
    head, last = parts[: len(parts) - len(last) - 1], trimmed(last)
    if not pieces or not _bounds(last):
        return None
    if texts_of(pieces[0])[1:] == [r"\in", r"\mathbb{R}"]:
        return answer_of(last)
    integer = last[1].text == r"\in" and last[-1].text.startswith(r"\mathbb")
    valued = find(head, lambda token: token.text in RELATIONS and token.text != "=") < 0
    return labelled(answer_of(head), condition=_condition(last)) if integer or valued else None


def _condition(parts: Iterable[Token]) -> tuple[str]:
    """A condition as its text; `k \\in \\mathbb{Z}` and `k is an integer` give the same text."""
    text = untokenize(tuple(parts)).lower().replace(" ", "")
    whole = re.sub(r"\\in\\mathbb\{z\}|(?:isan|are|any)?integers?", "", text)
    return (whole if whole == text else whole + " whole",)


def _begins_condition(token: Token) -> bool:
    return (token.kind == "word" and token.text.lower() in (*CONDITION, EXCLUDING)) or token.text == r"\forall"


def _appended(parts: Tokens) -> tuple[Tokens, Tokens]:
    """The tokens before a parenthesis that ends the answer, and those in it; nothing if none does."""
    ends = (at for at, token in enumerate(parts) if at and token.text == "(" and closing(parts, at) == len(parts) - 1)
    opening = next(ends, 0)
    return parts[:opening], parts[opening + 1 : -1] if opening else ()


def _bounds(parts: Tokens) -> bool:
    """Whether this is an inequality or a membership of one letter: a condition on the value beside it."""
    sides, signs = sides_and_signs(parts)
    return bool(signs) and set(signs) <= _BOUNDING and all(sides) and any(map(is_name, sides))


def _approximated(parts: Tokens) -> Answer | None:
    """Two forms of one value: `\\sqrt{2} \\approx 1.41`; `0.2 \\; (20%)` and `\\sqrt{6} (\\approx 2.449)`."""
    at = find(parts, lambda token: token.text == r"\approx")
    if at >= 0 and find(parts, lambda token: token.text in (",", ";")) < 0:
        before, after = trimmed(parts[:at]), trimmed(parts[at + 1 :])
        if not after or not before:
            return answer_of(after or before) if after or before else None
        left = answer_of(before)
        if is_name(before) and not left.letter:
            return labelled(answer_of(after), name=before)
        return either(left, answer_of(after))
    value, inside = _appended(parts)
    if value and inside and (inside[0].text in (r"\approx", "=", "or") or inside[-1].text == "%"):
        again = inside[inside[0].kind in ("word", "command") or inside[0].text == "=" :]
        again = again[texts_of(again[:1]) == ["equivalently"] :]
        return either(answer_of(value), answer_of(again), all_hold=inside[0].text == "or")
    return None


def _listed(parts: Tokens) -> Answer | None:
    """Several answers: between commas, semicolons, `and`, `or`, `\\cup`, or tuples side by side."""
    if is_words(parts) and not any(token.text in (",", "and") for token in parts):
        return None
    pieces, words = listing(parts) or ([parts], set())
    if len(pieces) == 1:
        return None if len(pieces[0]) == len(parts) else answer_of(pieces[0])
    for sign, wanted in ((";", any), ("or", all), ("and", all)):  # x = 1, y = 2; x = 3, y = 4
        outer = split(parts, sign)
        rows = [answer_of(piece) for piece in outer if piece] if len(outer) > 1 and len(outer) < len(pieces) else []
        if sign == "and" and len({_names(row) for row in rows}) > 1:
            continue  # x = 1, y = 2 and z = 3
        if rows and wanted(isinstance(row.value, Group) and (sign == ";" or _named(row)) for row in rows):
            return Answer(Group(tuple(rows)))
    sign = r"\cup" if r"\cup" in words else "," if not {"and", "or"} & words else ""
    items = [answer_of(piece) if sign == r"\cup" else _member(piece) for piece in pieces]
    different = len({*items}) == len(items)
    return joint(items, words) or as_group(items, "or" in words and different, sign=sign)


def _names(answer: Answer) -> tuple[str, ...]:
    return tuple(untokenize(item.name) for item in answer.value.items) if isinstance(answer.value, Group) else ()


def _named(answer: Answer) -> bool:
    return isinstance(answer.value, Group) and all(item.name for item in answer.value.items)


def _member(piece: Tokens) -> Answer:
    """One of several; a set stays one of them."""
    answer = answer_of(piece)
    return Answer(Row(r"\{\}", (answer,))) if answer == NOTHING or _is_braced(trimmed(piece)) else answer


def _is_braced(parts: Tokens) -> bool:
    return texts_of(parts[:1]) == [r"\{"] and closing(parts, 0) == len(parts) - 1


@READING.of
def _item(parts: Tokens) -> Answer:
    parts = trimmed(parts)
    if not parts:
        return Answer(Text(""))
    for sense in (read_words, _measured, read_time, _related, _plus_minus, _set, _labelled, _bracketed, _matrix,
                  _ratio, read_based):  # fmt: skip
        if (answer := sense(parts)) is not None:
            return answer
    return read_quantity(parts)


def _measured(parts: Tokens) -> Answer | None:
    """A point or a set with a unit behind it, which is left out."""
    end = closing(parts, 0)
    behind = parts[end + 1 :]
    if parts[0].text not in ("(", "[", r"\{") or not behind or behind[0].kind != "word" or unit(behind) is None:
        return None
    return _item(parts[: end + 1])


def _plus_minus(parts: Tokens) -> Answer | None:
    if not any(token.text in (r"\pm", r"\mp") for token in parts) or _is_braced(parts):
        return None
    signs = {r"\pm": "+-", r"\mp": "-+"}
    sides = (tuple(Token("sign", signs[t.text][at]) if t.text in signs else t for t in parts) for at in (0, 1))
    return as_group([*map(_item, sides)])


def _set(parts: Tokens) -> Answer | None:
    """`\\{...\\}`, builders, and differences of sets."""
    for sign in (r"\setminus", "-"):
        pieces = split(parts, sign)
        if len(pieces) == 2 and (sign != "-" or texts_of(pieces[0]) in ([r"\mathbb{R}"], [r"\R"])):
            whole, apart = map(answer_of, pieces)
            rest = complement(replace(apart, name=()))
            return (rest and intersection([whole, rest])) or as_text(parts)
    if r"\cap" in texts_of(parts) or r"\setminus" in texts_of(parts):
        return as_text(parts)
    if not _is_braced(parts):
        return None
    inside = parts[1:-1]
    at = find(inside, lambda token: token.text in ("|", ":"))
    if at > 0 and find(inside[at + 1 :], lambda token: token.text in RELATIONS) >= 0:
        return answer_of(inside[at + 1 :])
    if not inside:
        return NOTHING
    return as_group([_member(piece) for piece in split(inside, ",", ";") if piece], braced=True)


def _labelled(parts: Tokens) -> Answer | None:
    """`A(7,1)`, `\\text{vertex } (7,1)`, `\\text{Ann: } 7`: the label may be left out."""
    at = next((at for at, token in enumerate(parts) if token.kind != "word" and token.text not in ("'", "-")), 0)
    if parts[0].kind == "letters" and len(parts[0].text) > 2:
        at = 1
    if at and texts_of(parts[at : at + 1]) == [":"] and len(parts) > at + 1:
        if denies(texts_of(parts[:at])):
            return as_text(parts)
        return labelled(answer_of(parts[at + 1 :]), name=parts[:at])
    name, inside = _appended(parts)
    labels = name and (len(name) == at or re.fullmatch("[A-Z]", untokenize(name)))
    pointed = labels and len(split(inside, ",", ";")) > 1 and not {"-", *NEGATING} & {*map(str.lower, texts_of(name))}
    return labelled(_item(parts[len(name) :]), name=name) if pointed else None


def _bracketed(parts: Tokens) -> Answer | None:
    opening, last = parts[0].text, parts[-1].text
    if opening not in ("(", "[") or last not in (")", "]") or closing(parts, 0) < len(parts) - 1:
        return None
    pieces = [trimmed(piece) for piece in split(parts[1:-1], ",", ";")]
    if len(pieces) == 1:
        return _item(parts[1:-1]) if (opening, last) in (("(", ")"), ("[", "]")) else None
    if not all(pieces):
        return as_text(parts)
    return as_interval(opening, last, tuple(answer_of(piece) for piece in pieces))


def _matrix(parts: Tokens) -> Answer | None:
    begin = next((at for at, token in enumerate(parts) if token.text.startswith(r"\begin{")), -1)  # behind a factor
    opening = re.fullmatch(r"\\begin\{(\w+)\}", parts[begin].text)
    if begin < 0 or not opening or opening[1] not in _MATRICES or closing(parts, begin) != len(parts) - 1:
        return None
    factor = expr_of(parts[:begin]) if begin else None
    if begin and (factor is None or opening[1] == "array"):
        return None
    lines = [split(line, "&") for line in split(parts[begin + 1 : -1], r"\\") if line]
    entries = tuple(_item(trimmed(cell)) for line in lines for cell in line)
    if factor is not None:
        values = [(entry, quantity(entry)) for entry in entries]
        entries = tuple(entry if value is None else Answer(Call("*", (factor, value))) for entry, value in values)
    if opening[1] == "array" and len(entries) == 1:
        return entries[0]
    shape = {len(entries): "column", 1: "row"}.get(len(lines), f"{len(lines)} rows")
    return Answer(Row("det " * (opening[1] == "vmatrix") + shape, entries))


def _ratio(parts: Tokens) -> Answer | None:
    spoken = any(token.kind == "word" and token.text == "to" for token in parts)
    pieces = split(parts, ":", *["to"] * spoken)
    if len(pieces) < 2 or not all(pieces):
        return None
    try:
        return Answer(Ratio(tuple(expression(trimmed(piece)) for piece in pieces)))
    except NoExpression:
        return as_text(parts)


# Equations, inequalities and memberships; and several answers as one: lists, unions, complements.


def _related(parts: Tokens) -> Answer | None:
    """Names with values, memberships, inequalities of a letter as intervals, and other relations."""
    pieces, signs = sides_and_signs(parts)
    if not signs or not all(pieces):
        return None
    if r"\Rightarrow" in signs:
        sides = [answer_of(side) for side in split(parts, r"\Rightarrow") if trimmed(side)]
        name = untokenize(sides[-1].name)
        alike = [replace(one, name=()) for one in sides if untokenize(one.name) == name]
        return as_text(parts) if _disagree(alike) else answer_of(pieces[-1])  # 4 \Rightarrow 5
    if set(signs) == {"="}:
        return _equation(pieces)
    if texts_of(parts[1:4]) in ([r"\in", r"\mathbb{R}", sign] for sign in (":", "|")):
        return answer_of(parts[4:])  # a set without its braces
    if signs == [r"\equiv"] and (congruence := _congruence(*pieces)):
        return congruence
    if signs == [r"\in"]:
        if len(pieces[0]) == 1 or is_name(pieces[0]) or is_name_row(pieces[0]) or is_measure(pieces[0]):
            inner = answer_of(pieces[1])
            if is_name_row(pieces[0]):
                return labelled(inner, name=pieces[0])
            if not isinstance(inner.value, Text) or not inner.value.readable:
                return inner
    if set(signs) <= {"<", r"\le"} or set(signs) <= {">", r"\ge"}:
        return _inequality(pieces, signs)
    if signs == [r"\ne"]:
        name = name_of(pieces[0])
        if not name:
            pieces, name = pieces[::-1], name_of(pieces[1])
        points = answer_of(pieces[1])
        if name and (isinstance(points.value, Group) or is_numeric(pieces[1])):
            apart = complement(points)
            return replace(apart, bounds=name) if apart else None
    if signs[-1] == r"\approx":
        return None
    if len(signs) == 1:
        return Answer(Relation(signs[0], (answer_of(pieces[0]), answer_of(pieces[1]))))
    return as_text(parts)


def _congruence(side: Tokens, residue: Tokens) -> Answer | None:
    """`x \\equiv -1 \\pmod{4}`, where the sign belongs to the residue."""
    at = next((at for at, token in enumerate(residue) if token.text in (r"\mod", "mod")), 0)
    bracketed = at > 1 and residue[at - 1].text == "("  # 3 (mod 4)
    pieces = (residue[: at - bracketed], residue[at + 1 : len(residue) - bracketed])
    values = [expr_of(piece) for piece in pieces] if at else [None]
    if not all(values):
        return None
    return Answer(Relation(r"\equiv", (answer_of(side), Answer(Call("mod", tuple(filter(None, values)))))))


def _equation(pieces: list[Tokens]) -> Answer:
    first, last, value = pieces[0], pieces[-1], answer_of(pieces[-1])
    valued = [piece for piece in pieces if any(token.kind == "number" for token in piece)]
    if len(valued) > 1 and _disagree([read_quantity(trimmed(piece)) for piece in valued if is_numeric(piece)]):
        return Answer(Text("=".join(map(untokenize, pieces)), False))
    if len(pieces) == 2 and name_of(last) and not (is_name(first) or is_measure(first)):
        first, last, value = last, first, answer_of(first)  # 5 = x
    above, below = _quotient(first)
    if is_name(first) or is_name_row(first) or name_of(first) or (is_name(above) and is_name(below)):
        return labelled(value, name=first)
    if first[0].text in UNFINISHED or ("]", "_") in (ends := [*pairwise(texts_of(first))]) or ("|", "_") in ends:
        return labelled(value, name=first)  # an integral, or its antiderivative between its ends
    if all(map(is_numeric, pieces)):
        return value  # 0.56 = 56\%: spellings of one value
    if _describes(first) and is_numeric(last):
        return labelled(value, name=first)
    if len(pieces) > 2 and (len(untokenize(last)) > 1 and is_measure(last) or all(map(is_name, pieces))):
        return Answer(Text("=".join(map(untokenize, pieces)), False))  # AB = BC = CA
    measured = any(is_measure((token,)) and len(token.text) > 1 for token in last)  # AB = 2CD
    if len(pieces) > 2 or (is_measure(first) and not measured) or (is_measure(above) and is_numeric(last)):
        return labelled(value, name=first)
    return Answer(Relation("=", (answer_of(first), value)))


def _describes(parts: Tokens) -> bool:
    """`\\mathbb{E}[k]`, `\\min_{z \\in S} z`, `\\text{smallest } n`, `BC^2` or a determinant: no equation to solve."""
    words = next((at for at, token in enumerate(parts) if token.kind != "word"), 0)
    if words and not denies(texts_of(parts[:words])):
        return is_name(parts[words:]) or is_measure(parts[words:])
    power = texts_of(parts[-4:]) if parts[-1].text == "}" else texts_of(parts[-2:])
    base = parts[: len(parts) - len(power)]
    if "".join(power) in ("^2", "^{2}"):
        return is_measure(base) and base[0].kind == "letters" and len(base[0].text) > 1
    opened = parts[0].text.partition("_")[0]
    determinant = (
        opened == r"\begin{vmatrix}" or opened in (r"\det", "|") and r"\begin{" in "".join(texts_of(parts[:2]))
    )
    if determinant or (opened == r"\det" and len(parts) == 2):
        return True
    return opened in _OPERATORS and expr_of(parts) is None and not any(token.kind == "word" for token in parts)


def _disagree(read: list[Answer]) -> bool:
    """Whether fractions that are said to be equal differ by more than a rounding: `0 = 5`, but not `1/3 = 0.33`."""
    values = [value for one in read if is_number(one) and not one.unit and (value := quantity(one))]
    residue = any("mod" in names_of(value, Call) for value in values)
    return not residue and len(values) == len(read) and any(differ(*pair) for pair in pairwise(values))


def _quotient(parts: Tokens) -> tuple[Tokens, Tokens]:
    """Numerator and denominator if the tokens are one fraction; else nothing."""
    middle = closing(parts, 1) if parts[0].text == r"\frac" else -1
    if middle < 0 or closing(parts, middle + 1) != len(parts) - 1:
        return (), ()
    return parts[2:middle], parts[middle + 2 : -1]


def _inequality(pieces: list[Tokens], signs: list[str]) -> Answer:
    if signs[0] in (">", r"\ge"):
        pieces, signs = pieces[::-1], [_REVERSED[sign] for sign in signs[::-1]]
    if len(pieces) == 3 and (name := name_of(pieces[1])):
        ends = (answer_of(pieces[0]), answer_of(pieces[2]))
        return as_interval("(" if signs[0] == "<" else "[", ")" if signs[1] == "<" else "]", ends, name)
    if len(pieces) > 2:
        return Answer(Text("".join(map("".join, zip(map(untokenize, pieces), [*signs, ""], strict=True))), False))
    if bounded := _absolute(pieces, signs[0]):
        return bounded
    closed = signs[0] == r"\le"
    for at, side in enumerate(pieces):
        name, other = name_of(side), pieces[1 - at]
        if name and name not in letters_of(expr_of(other) or Symbol(name)):
            ends = (LOW, answer_of(other)) if at == 0 else (answer_of(other), HIGH)
            return as_interval("[" if closed else "(", "]" if closed else ")", ends, name)
    return Answer(Relation(signs[0], (answer_of(pieces[0]), answer_of(pieces[1]))))


def _absolute(pieces: list[Tokens], sign: str) -> Answer | None:
    """`|x - a| < b` and `|x - a| > b` as intervals; `|z|` may be the size of a complex number."""
    for inside, (size, other) in ((True, pieces), (False, pieces[::-1])):
        value, radius = expr_of(size), expr_of(other)
        if not isinstance(value, Call) or value.name != "abs" or radius is None or letters_of(radius):
            continue
        middle = shift(value.args[0])
        if middle is None or middle[0] in ("z", "w") or not is_number(read_quantity(other)) or exact(radius) <= 0:
            return None
        name, centre = middle
        low, high = (Answer(Number(centre + times * exact(radius))) for times in (-1, 1))
        if inside:
            return as_interval("[" if sign == r"\le" else "(", "]" if sign == r"\le" else ")", (low, high), name)
        sides = ("(", "]" if sign == r"\le" else ")", (LOW, low)), ("[" if sign == r"\le" else "(", ")", (high, HIGH))
        return as_group([as_interval(*side, name) for side in sides])
    return None


def shift(expr: Expr) -> tuple[str, Fraction] | None:
    """(`x`, 3) of `x - 3`: the letter, and its value where the expression is 0."""
    added = expr.args if isinstance(expr, Call) and expr.name == "+" else (expr, Number(Fraction()))
    letters = [one for one in added if isinstance(one, Symbol) and letters_of(one)]
    numbers = [one for one in added if not letters_of(one)]
    if len(letters) != 1 or len(numbers) != 1 or not is_number(Answer(numbers[0])):
        return None
    return letters[0].name, -exact(numbers[0])


def as_group(items: list[Answer], alternatives: bool = False, braced: bool = False, sign: str = "") -> Answer:
    flat: list[Answer] = []
    for item in items:
        inner = item.value.items if isinstance(item.value, Group) and replace(item, name=()).bare else ()
        for one in [replace(one, name=item.name or one.name) for one in inner] or [item]:
            # A repeated solution counts once; repeated plain numbers all count, because they may be multiple roots.
            if one not in flat or quantity(one) is not None:
                flat.append(one)
    if len(flat) == 1:
        return flat[0]
    first = flat[0]
    if first.name and not isinstance(first.value, Row) and not any(item.name for item in flat[1:]):
        flat[0] = replace(first, name=())  # a = 4, -8, -10
    pairs = all(isinstance(one.value, Row) and one.value.brackets == "()" and not one.bounds for one in flat)
    either = pairs and not any(
        end in (LOW, HIGH) for one in flat if isinstance(one.value, Row) for end in one.value.items
    )
    return Answer(Group(tuple(flat), alternatives, braced, sign if either else ""))


def as_interval(opening: str, closing_: str, ends: tuple[Answer, ...], bounds: str = "") -> Answer:
    opening = "(" if ends[0] == LOW else opening
    return Answer(Row(opening + (")" if ends[-1] == HIGH else closing_), ends), bounds=bounds)


def joint(items: list[Answer], texts: set[str]) -> Answer | None:
    """`x \\ge 1 and x < 9` is one interval; `x > 0, x \\ne 1` and `x \\ne 0, 1` lack points. None for other items."""
    first = items[0]
    if not first.bounds or "or" in texts:
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
    if len(rows) > 1 and not ("and" in texts and all(LOW in row.items or HIGH in row.items for row in rows)):
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


@READING.of
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
