r"""Sets of real numbers in any notation: intervals, inequalities, set-builders, unions, `\mathbb{R}\setminus\{3\}`.

Pure text work. Two answers that are both regions and not equal as they are written are compared by their points,
which needs algebra.
"""

import re
from dataclasses import dataclass

from real_openrlhf.rewards.verifier.structure import RELATION, enclosed, split


@dataclass(frozen=True)
class Interval:
    low: str
    high: str
    closed: tuple[bool, bool]


@dataclass(frozen=True)
class Points:
    values: tuple[str, ...]


@dataclass(frozen=True)
class Condition:
    r"""`left sign right`; signs are `<`, `\le` and `\ne`."""

    left: str
    sign: str
    right: str


@dataclass(frozen=True)
class Joined:
    """The union, intersection or difference of regions."""

    how: str  # or, and, minus
    parts: tuple["Region", ...]


Region = Interval | Points | Condition | Joined

_ALL = Joined("and", ())
_NOTHING = Joined("or", ())
_REAL_LINES: dict[str, Region] = {
    r"\mathbb{R}": _ALL,
    r"\emptyset": _NOTHING,
    r"\mathbb{R}^{+}": Interval("0", r"\infty", (False, False)),
    r"\mathbb{R}^{-}": Interval(r"-\infty", "0", (False, False)),
}
_WRITTEN_AS_REGION = re.compile(r"[<>]|\\(?:le|ge|ne|cup|cap|setminus|mid)(?![a-zA-Z])|\\mathbb\{R\}")
_BUILDER = re.compile(r"^([^|:]*?)(?:\||:)(.*)$", re.DOTALL)
_MEMBER = re.compile(r"^(?:[a-zA-Z]|\\[a-z]+)(?:_\{\w+\})?\\in(?![a-zA-Z]) ?(.+)$", re.DOTALL)
_NOT_EQUAL = r"\ne"
_SIGN = re.compile(r"(\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|\\ne(?![a-zA-Z])|<|>) ?")
_UPWARD = {"<": "<", r"\le": r"\le", ">": "<", r"\ge": r"\le", r"\ne": r"\ne"}
_MAX_DEPTH = 6


def comparable(gold: str, answer: str) -> tuple[Region, Region] | None:
    """Both texts as regions, where at least one can be nothing else: `(1,2)` alone may be a point."""
    if not (_WRITTEN_AS_REGION.search(gold) or _WRITTEN_AS_REGION.search(answer)):
        return None
    gold_region, region = _region(gold.strip(), 0), _region(answer.strip(), 0)
    return None if gold_region is None or region is None else (gold_region, region)


def is_built(text: str) -> bool:
    r"""Whether the text is a set-builder, `\{x | x > 2\}`."""
    body = enclosed(text.replace(r"\mid", "|"))
    builder = _BUILDER.match(body[1]) if body and body[0] == r"\{" else None
    return builder is not None and RELATION.search(builder[2]) is not None


def _region(text: str, depth: int) -> Region | None:
    if depth > _MAX_DEPTH or not text:
        return None
    if text in _REAL_LINES:
        return _REAL_LINES[text]
    for how, separators in (("or", (r"\text{or}", ";")), ("and", (r"\text{and}",)), ("", (",",))):
        pieces = split(text, separators, thousands=False)
        if len(pieces) > 1:
            if not how and _NOT_EQUAL in pieces[0]:  # x \ne 0, 1
                name = pieces[0].partition(_NOT_EQUAL)[0]
                pieces = [piece if _SIGN.search(piece) else f"{name}{_NOT_EQUAL} {piece}" for piece in pieces]
            if not how and not all(map(_WRITTEN_AS_REGION.search, pieces)):
                return None  # points of a list
            return _joined(how or _meaning_of_comma(pieces), pieces, depth)
    member = _MEMBER.match(text)
    if member:
        return _region(member[1], depth + 1)
    for how, separator in (("or", r"\cup"), ("and", r"\cap"), ("minus", r"\setminus")):
        pieces = split(text, (separator,), thousands=False)
        if len(pieces) > 1:
            return _joined(how, pieces, depth)
    if text.startswith(r"\mathbb{R}-"):
        return _joined("minus", [r"\mathbb{R}", text.removeprefix(r"\mathbb{R}-")], depth)
    body = enclosed(text)
    return _bracketed(*body, depth) if body else _inequality(text)


def _meaning_of_comma(pieces: list[str]) -> str:
    """`x<1, x>4` are two parts of a solution; what is excluded, or told of the domain, holds for all of it."""
    exclusive = any(_NOT_EQUAL in piece or r"\in" in piece for piece in pieces)
    return "and" if exclusive else "or"


def _joined(how: str, pieces: list[str], depth: int) -> Region | None:
    if how != "minus" and not all(_names_a_set(piece) for piece in pieces):
        return None
    return _join(how, [_region(piece, depth + 1) for piece in pieces])


def _join(how: str, parts: list[Region | None]) -> Region | None:
    regions = tuple(part for part in parts if part is not None)
    return Joined(how, regions) if len(regions) == len(parts) else None


def _names_a_set(text: str) -> bool:
    """A bare number beside a comma is a point of a list, not a region."""
    return enclosed(text) is not None or _WRITTEN_AS_REGION.search(text) is not None or text == r"\emptyset"


def _bracketed(opening: str, inner: str, closing: str, depth: int) -> Region | None:
    if opening == r"\{":
        builder = _BUILDER.match(inner.replace(r"\mid", "|"))
        if builder and RELATION.search(builder[2]):
            return _built(builder[1], builder[2], depth)
        values = split(inner, (",",), thousands=False)
        return Points(tuple(values)) if values and not _WRITTEN_AS_REGION.search(inner) else None
    ends = split(inner, (",", ";"), thousands=False)
    if len(ends) == 2 and opening in "([" and closing in ")]":
        return Interval(ends[0], ends[1], (opening == "[", closing == "]"))
    return _region(inner, depth + 1) if opening + closing in ("()", "{}") else None


def _built(variable: str, condition: str, depth: int) -> Region | None:
    domain = _MEMBER.match(variable.strip())
    parts = [_region(condition.strip(), depth + 1)]
    if domain:
        parts.append(_region(domain[1], depth + 1))
    return _join("and", parts)


def _inequality(text: str) -> Region | None:
    r"""`1 \le |z| \le 2` as two conditions that both hold; `x \ne \pm 2` as two as well."""
    parts = _SIGN.split(text)
    sides, signs = [side.strip() for side in parts[::2]], parts[1::2]
    if not signs or len(signs) > 3 or not all(sides) or "=" in text:
        return None
    conditions: list[Region] = []
    for left, sign, right in zip(sides, signs, sides[1:], strict=False):
        if sign in (">", r"\ge"):
            left, right = right, left
        if r"\pm" in left + right and sign != _NOT_EQUAL:
            return None
        conditions += [Condition(left, _UPWARD[sign], spelled) for spelled in _both_signs(right)]
    return Joined("and", tuple(conditions))


def _both_signs(text: str) -> list[str]:
    if r"\pm" not in text:
        return [text]
    return [text.replace(r"\pm", "").strip(), text.replace(r"\pm", "-").replace("- ", "-")]
