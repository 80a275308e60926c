r"""The shape of an answer: lists, tuples, intervals, ratios and matrices, down to leaves of text.

What makes two leaves equal is the caller's business: the same rules serve cheap exact comparison and algebra.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from real_openrlhf.rewards.verifier import number, value
from real_openrlhf.rewards.verifier.text import CLOSING, OPENING, PUNCTUATION, split, tokens

# Gold text, answer text, how many digits make a decimal stand for what it rounds.
LeafEqual = Callable[[str, str, int], bool]


@dataclass(frozen=True)
class Leaf:
    text: str


@dataclass(frozen=True)
class Row:
    """A tuple, point or interval: order and brackets count. A ratio is a row of quotients, a matrix of entries."""

    brackets: str
    items: tuple["Node", ...]
    text: str = ""  # the inequality or the matrix that it was written as
    names: tuple[str, ...] = ()  # its variable; x and y of `(x,y) = (1,2)`; of a time, a or p


@dataclass(frozen=True)
class Collection:
    """A set, list of solutions or union: the order does not count."""

    items: tuple["Node", ...]
    labelled: bool = False  # `AB = 4, CD = 5`: in this order where the other side has no labels


Node = Leaf | Row | Collection

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_MEMBER = re.compile(r"^[a-zA-Z](?:_\{\w+\})?\\in(?![a-zA-Z])(.+)$", re.DOTALL)
_MATRIX = re.compile(r"^\\begin\{([pb]?matrix|smallmatrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}$", re.DOTALL)
_NEW_LINE = re.compile(r"\\\\(?:\[-?[\d.]+ ?(?:pt|em|ex|mm|cm)\])?")
_NAMES = re.compile(r"^\(?([a-zA-Z](?:_\{\w+\})?(?:,[a-zA-Z](?:_\{\w+\})?)+)\)?$")
_RELATION = re.compile(r"(\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|<|>) ?")
_BUILDER = re.compile(r"^[a-z](?:\\in ?\\mathbb\{R\})?[|:](.*(?:<|>|\\[lg]e ).*)$", re.DOTALL)
_APART = re.compile(r"^(?:([a-z])\\ne ?|\\mathbb\{R\}(?:\\setminus|-) ?\\\{)([^=<>]+?)(?:\\\})?$")  # x \ne 3
_REVERSED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_VARIABLE = re.compile(r"^(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{[^{}]*\})?(?:\([a-z]\))?$")
_TIME = re.compile(r"^(?:\\text\{ *)?0?(\d{1,2}(?::\d\d){1,2}) ?(?:\\text\{ *)?(?:([aApP])\.? ?[mM]\.?)? *\}?$")
_NO_RATIO = re.compile(r"\\(?:in|to|ldots|mapsto|text)(?![a-zA-Z])|\|")
# `k \in \mathbb{Z}` and `\text{for all } x` may be left out, not changed.
_QUALIFIED = re.compile(
    r"^(.+?)[,; (]*(?:(?<=[,; (}])((?:\\text\{ *(?:where|with|for)? *\})?[a-z]\\in ?\\mathbb\{[A-Z]\}\)?)"
    r"|(\\text\{ *(?:for (?:all|any|every)|where)\b[^{}]*\}[^,;]*|\\forall[^,;]*))?$",
    re.DOTALL,
)
_CHOICE_WITH_VALUE = re.compile(r"^(?:\\text\{(?=\(.\) *\}))?\(([A-E])\)(?: *\}(?=[^,;])|(?=[\d\\]))")
_JOINED = re.compile(r"\)\s*\((?=[^()]*,)")
_APPROXIMATE_DIGITS = 2  # that `\sqrt{2} \approx 1.4` must show to be taken for what it approximates


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """The tree of a normalised answer."""
    text = text.strip().removeprefix("+")
    member = _MEMBER.match(text)
    if member:
        text = member[1].strip()
    pieces = split(_JOINED.sub("),(", text) if re.fullmatch(r"(?:\([^(),]*,[^()]*\)\s*)+", text) else text)
    if len(pieces) > 1:
        return _collection([parse(piece) for piece in pieces])
    return _item(text)


def _enclosed(text: str) -> tuple[str, str, str] | None:
    """Opening bracket, content, closing bracket where one pair of brackets holds the whole text."""
    parts = tokens(text)
    if len(parts) < 2 or parts[0] not in ("(", "[", r"\{", "{") or parts[-1] not in (")", "]", r"\}", "}"):
        return None
    depth = 0
    for index, token in enumerate(parts):
        depth += (token in OPENING) - (token in CLOSING)
        if depth == 0 and index < len(parts) - 1:
            return None
    return (parts[0], "".join(parts[1:-1]), parts[-1]) if depth == 0 else None


def _collection(items: list[Node]) -> Node:
    kept: list[Node] = []
    for item in items:
        for one in item.items if isinstance(item, Collection) else (item,):
            # A solution that is given twice is one; of bare numbers each counts, they may be roots.
            if one not in kept or (isinstance(one, Leaf) and "=" not in one.text):
                kept.append(one)
    labels = [_named(item)[0] for item in kept]
    if len(kept) == 1:
        return kept[0]
    if labels[0] and not any(labels[1:]):
        kept[0] = parse(_named(kept[0])[1])  # a = 4, -8, -10
    if not all(labels) or len({value.base(label) for label in labels}) == 1:
        return Collection(tuple(kept))
    # Several unknowns: x = 1, y = 2. With two solutions each, only the same order is recognised.
    if len(set(labels)) < len(labels):
        return Row("=", tuple(kept))
    if all(len(label) == 1 for label in labels):
        kept = [item for _, item in sorted(zip(labels, kept, strict=True), key=lambda pair: pair[0])]
    return Collection(tuple(kept), labelled=True)


def _named(item: Node) -> tuple[str, str]:
    name, said = value.named(item.text) if isinstance(item, Leaf) else ("", "")
    return (name, said) if name and not value.is_equation(name, said) else ("", "")


def _item(text: str) -> Node:
    if "matrix}" in text or "array}" in text:
        return _matrix(text)
    name, said = value.named(text)
    if name:
        listed = _NAMES.match(name)
        if not listed and value.is_equation(name, said):
            return Leaf(text)
        node = _item(said)
        if isinstance(node, Row) and (listed or ":" in name):
            return replace(node, names=tuple(listed[1].split(",") if listed else [name]))
        return Leaf(text) if isinstance(node, Leaf) else node
    body = _enclosed(text)
    if body is not None and (
        body[0] == r"\{" or len(split(body[1], thousands=False)) > 1 or _PAIRS.get(body[0]) == body[2]
    ):
        return _bracketed(*body)
    if r"\pm" in text or r"\mp" in text:
        plus, minus = text.replace(r"\pm", "+").replace(r"\mp", "-"), text.replace(r"\pm", "-").replace(r"\mp", "+")
        return _collection(
            [_item(sign.replace("+ ", "+").replace("- ", "-").removeprefix("+")) for sign in (plus, minus)]
        )
    apart = _APART.match(text)
    if apart:
        ends, names = (r"-\infty", apart[2], r"\infty"), tuple(apart[1] or "")
        return Collection(tuple(Row("()", tuple(map(Leaf, pair)), names=names) for pair in pairwise(ends)))
    return _inequality(text) or _ratio(text) or Leaf(text)


def _bracketed(opening: str, inner: str, closing: str) -> Node:
    pieces = split(inner, thousands=False)
    if opening == r"\{":
        if not inner.strip():
            return Leaf(r"\emptyset")
        builder = _BUILDER.match(inner)
        if builder:
            return parse(builder[1])
        members = tuple(map(parse, pieces))
        return Row(r"\{\}", members) if members == (Leaf(r"\emptyset"),) else _collection(list(members))
    if len(pieces) == 1:
        return parse(inner)
    brackets = ("(" if pieces[0] == r"-\infty" else opening) + (")" if pieces[-1] == r"\infty" else closing)
    return Row(brackets, tuple(map(parse, pieces)))


def _matrix(text: str) -> Row | Leaf:
    body = _enclosed(text)
    if body and body[1].startswith(r"\begin{"):
        return _matrix(body[1])
    matrix = _MATRIX.match(text)
    if matrix and "=" not in text:
        rows = [line for line in _NEW_LINE.split(matrix[2]) if line.strip()]
        entries = tuple(_item(cell.strip()) for line in rows for cell in line.split("&"))
        shape = {len(entries): "column", 1: "row"}.get(len(rows), f"{len(rows)} rows")
        return Row(shape, entries, text)
    return Leaf(text)


def _ratio(text: str) -> Row | None:
    """`1:2:3`, equal up to a factor, as the quotients of each part and the next; `3:10 p.m.` is equal as it is."""
    time = _TIME.match(text)
    if ":" not in text or (not time and _NO_RATIO.search(text)):
        return None
    parts = split(time[1] if time else text, (":",))
    items = tuple(Leaf(f"\\frac{{{a}}}{{{b}}}") for a, b in pairwise(parts))
    return Row(":", items, names=("time", (time[2] or "").lower()) if time else ())


def _inequality(text: str) -> Node | None:
    """`-2 \\le x < 7` and `x > 5` as intervals of x, other inequalities with all their signs upward."""
    parts = _RELATION.split(text)
    sides, signs = [side.strip() for side in parts[::2]], parts[1::2]
    if not signs or not all(sides) or len({sign in ("<", r"\le") for sign in signs}) > 1:
        return None
    if signs[0] not in ("<", r"\le"):
        sides, signs = sides[::-1], [_REVERSED[sign] for sign in signs[::-1]]
    text = sides[0] + "".join(
        f"{sign}{' ' * (sign != '<')}{side}" for sign, side in zip(signs, sides[1:], strict=True)
    )
    closed = [sign == r"\le" for sign in signs]
    if len(signs) == 1 and _VARIABLE.match(sides[0]):
        sides, closed = [r"-\infty", *sides], [False, *closed]
    elif len(signs) == 1:
        sides, closed = [*sides, r"\infty"], [*closed, False]
    if len(sides) != 3 or not _VARIABLE.match(sides[1]):
        return Leaf(text)
    brackets = ("[" if closed[0] else "(") + ("]" if closed[1] else ")")
    return Row(brackets, (Leaf(sides[0]), Leaf(sides[2])), text, (sides[1],))


def equal(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    """Whether the two trees say the same; `leaf_equal` decides at the leaves."""
    if isinstance(gold, Leaf) and isinstance(answer, Leaf):
        return leaf_equal(gold.text, answer.text, number.ROUNDED_DIGITS)
    if isinstance(gold, Row) and isinstance(answer, Row):
        return _equal_rows(gold, answer, leaf_equal)
    if isinstance(gold, Collection) and isinstance(answer, Collection):
        rule = _in_order if gold.labelled != answer.labelled else _in_any_order
        return rule(gold.items, answer.items, leaf_equal)
    return _equal_mixed(gold, answer, leaf_equal)


def _equal_rows(gold: Row, answer: Row, leaf_equal: LeafEqual) -> bool:
    brackets = {gold.brackets, answer.brackets}
    if brackets & {"column", "row"} and brackets & {"()", "[]"}:
        return _in_order(gold.items, answer.items, leaf_equal)
    if gold.text and answer.text and gold.names != answer.names:
        return leaf_equal(gold.text, answer.text, number.ROUNDED_DIGITS)
    if "time" in gold.names and "time" in answer.names:
        return gold.items == answer.items and len({gold.names[1], answer.names[1]} - {""}) < 2
    if gold.names and answer.names and gold.names != answer.names:
        return False
    return gold.brackets == answer.brackets and _in_order(gold.items, answer.items, leaf_equal)


def _in_any_order(gold: tuple[Node, ...], answer: tuple[Node, ...], leaf_equal: LeafEqual) -> bool:
    """In any order, each item as often as it occurs."""
    if len(gold) != len(answer):
        return False
    rest = list(answer)
    for wanted in gold:
        # The same text first: it spares comparisons, and a pair that is undecided when a twin is there.
        rest.sort(key=lambda item: item != wanted)
        found = next((item for item in rest if item == wanted or equal(wanted, item, leaf_equal)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _equal_mixed(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    if not isinstance(gold, Row):
        return isinstance(answer, Row) and _equal_mixed(answer, gold, lambda g, a, digits: leaf_equal(a, g, digits))
    if isinstance(answer, Collection):
        # A tuple written without its parentheses, or a list written with them.
        return gold.brackets == "()" and not gold.text and _in_order(gold.items, answer.items, leaf_equal)
    if not isinstance(answer, Leaf):
        return False
    if gold.brackets == ":" and len(gold.items) == 1 and gold.names[1:] not in (("a",), ("p",)):
        return equal(gold.items[0], answer, leaf_equal)
    written = gold.text if _RELATION.search(answer.text) or "matrix}" in answer.text else ""
    return bool(written) and leaf_equal(written, answer.text, number.ROUNDED_DIGITS)


def _in_order(gold: tuple[Node, ...], answer: tuple[Node, ...], leaf_equal: LeafEqual) -> bool:
    return len(gold) == len(answer) and all(equal(g, a, leaf_equal) for g, a in zip(gold, answer, strict=True))


def same(gold: str, answer: str, leaf_equal: LeafEqual = value.same) -> bool:
    """Whether two normalised answers say the same; raises value.Undecided where text and arithmetic cannot tell."""
    (gold, gold_limit), (answer, limit) = _without_limit(gold), _without_limit(answer)
    if gold_limit and limit and gold_limit != limit:
        return False
    readings = _readings(gold, leaf_equal), _readings(answer, leaf_equal)
    return any(
        one == other or equal(parse(one), parse(other), leaf_equal) for one in readings[0] for other in readings[1]
    )


def _without_limit(text: str) -> tuple[str, str]:
    found = _QUALIFIED.match(text)
    return (found[1], (found[2] or found[3] or "").rstrip(")")) if found else (text, "")


def _readings(text: str, leaf_equal: LeafEqual) -> list[str]:
    r"""`\sqrt{2} \approx 1.414` commits to the exact value, to the rough one only where that is a rounding of it."""
    choice = _CHOICE_WITH_VALUE.match(text)
    if choice:
        return [choice[1], text[choice.end() :].strip()]  # `\text{(D)}12` is choice D, and 12
    exact, found, rough = text.partition(r"\approx")
    exact, rough = exact.strip(PUNCTUATION), rough.strip(PUNCTUATION)
    if not found or not rough:
        return [exact if found else text]
    if not exact or value.is_label(exact):
        return [f"{exact}={rough}" if exact else rough]
    if number.significant_digits(rough) and leaf_equal(exact, rough, _APPROXIMATE_DIGITS):
        return [exact, rough]
    return [exact]
