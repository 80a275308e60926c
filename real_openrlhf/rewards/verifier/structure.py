"""The shape of an answer: lists, tuples, intervals, unions and matrices, down to leaves that are compared one by one.

Pure text work; what makes two leaves equal is the caller's business, so that the same rules serve the cheap
exact comparison and the symbolic one.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from real_openrlhf.rewards.verifier.normalise import tokens

LeafEqual = Callable[[str, str], bool]
_MAX_ALTERNATIVES = 64


@dataclass(frozen=True)
class Leaf:
    text: str


@dataclass(frozen=True)
class Row:
    """A tuple, point or interval: the order and the brackets count."""

    brackets: str
    items: tuple["Node", ...]
    name: str = ""  # the variable of an interval that was written as an inequality


@dataclass(frozen=True)
class Collection:
    """A set, list of solutions or union: the order does not count."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Matrix:
    rows: tuple[tuple["Node", ...], ...]


Node = Leaf | Row | Collection | Matrix

_OPENING = ("(", "[", "{", r"\{", r"\lfloor", r"\lceil")
_CLOSING = (")", "]", "}", r"\}", r"\rfloor", r"\rceil")
_SEPARATORS = (",", ";", r"\cup", r"\text{and}", r"\text{or}")
_MEMBER = re.compile(r"^[^,;=(){}\[\]]{1,12}\\in(?![a-zA-Z])(.+)$", re.DOTALL)
_MATRIX = re.compile(r"^\\begin\{([pbB]?matrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}$", re.DOTALL)
_THOUSANDS = re.compile(r"(?:[-$]|\\cdot ?|^)*\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)")
_RELATION = re.compile(r"(\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|<|>) ?")
_VARIABLE = re.compile(r"^(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{[^{}]*\})?(?:\([a-z]\))?$")
_LEFT_SIDE = re.compile(r"^\(?[a-zA-Z](?:_\{\w+\})?(?:,[a-zA-Z](?:_\{\w+\})?)*\)?$|^[a-zA-Z]$")


def parse(text: str) -> Node:
    """The tree of a normalised answer."""
    text = text.strip()
    member = _MEMBER.match(text)
    if member:
        text = member[1].strip()
    pieces = _split(text)
    if len(pieces) > 1:
        return _collection([parse(piece) for piece in pieces])
    return _item(text)


def equal(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    """Whether the two trees say the same; `leaf_equal(gold text, answer text)` decides at the leaves."""
    if isinstance(gold, Leaf) and isinstance(answer, Leaf):
        return leaf_equal(gold.text, answer.text)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return _equal_matrices(gold, answer, leaf_equal)
    if isinstance(gold, Row) and isinstance(answer, Row):
        names = {gold.name, answer.name} - {""}
        return gold.brackets == answer.brackets and len(names) < 2 and _in_order(gold.items, answer.items, leaf_equal)
    if isinstance(gold, Collection) and isinstance(answer, Collection):
        return _in_any_order(gold.items, answer.items, leaf_equal)
    # A tuple written without its parentheses, or a list written with them.
    row, other = (gold, answer) if isinstance(gold, Row) else (answer, gold)
    if isinstance(row, Row) and isinstance(other, Collection):
        return row.brackets == "()" and _in_order(gold.items, answer.items, leaf_equal)
    return False


def _in_order(gold: tuple[Node, ...], answer: tuple[Node, ...], leaf_equal: LeafEqual) -> bool:
    return len(gold) == len(answer) and all(equal(g, a, leaf_equal) for g, a in zip(gold, answer, strict=True))


def _in_any_order(gold: tuple[Node, ...], answer: tuple[Node, ...], leaf_equal: LeafEqual) -> bool:
    if len(gold) != len(answer):
        return False
    rest = list(answer)
    for wanted in gold:
        # The same text first: it spares comparisons, and a pair that is undecided when a twin is there.
        found = next((item for item in rest if item == wanted), None)
        if found is None:
            found = next((item for item in rest if equal(wanted, item, leaf_equal)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _equal_matrices(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        return len(gold.rows) == len(answer.rows) and all(
            _in_order(g, a, leaf_equal) for g, a in zip(gold.rows, answer.rows, strict=True)
        )
    # A column or row vector written as a tuple.
    matrix, row = (gold, answer) if isinstance(gold, Matrix) else (answer, gold)
    if isinstance(row, Row) and row.brackets == "()" and 1 in (len(matrix.rows), len(matrix.rows[0])):
        vector = tuple(item for line in matrix.rows for item in line)
        pair = (vector, row.items) if matrix is gold else (row.items, vector)
        return _in_order(*pair, leaf_equal)
    return False


def _collection(items: list[Node]) -> Node:
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Collection) else [item])
    return flat[0] if len(flat) == 1 else Collection(tuple(flat))


def _item(text: str) -> Node:
    left, equals, right = text.partition("=")
    if equals and "=" not in right and _LEFT_SIDE.match(left.strip()):
        named = _item(right.strip())
        if not isinstance(named, Leaf):
            return named
        if "," in left:
            return named
    matrix = _MATRIX.match(text)
    if matrix:
        lines = [line for line in re.split(r"\\\\", matrix[2]) if line.strip()]
        return Matrix(tuple(tuple(_item(cell.strip()) for cell in line.split("&")) for line in lines))
    if "matrix}" in text:
        return Leaf(text)
    body = _enclosed(text)
    if body is not None:
        opening, inner, closing = body
        pieces = _split(inner, thousands=False)
        if opening == r"\{":
            return _collection([parse(piece) for piece in pieces]) if inner.strip() else Leaf(r"\emptyset")
        if len(pieces) > 1:
            rows = [Row(opening + closing, combination) for combination in _combinations(pieces)]
            return _collection(list(rows))
        if opening + closing in ("()", "[]", "{}"):
            return parse(inner)
    if r"\pm" in text or r"\mp" in text:
        plus = text.replace(r"\pm", "+").replace(r"\mp", "-")
        minus = text.replace(r"\pm", "-").replace(r"\mp", "+")
        return _collection([_item(_joined_signs(plus)), _item(_joined_signs(minus))])
    return _interval(text) or Leaf(text)


def _combinations(pieces: list[str]) -> list[tuple[Node, ...]]:
    """The rows that `(\\pm 3, \\pm 2)` stands for: every choice of signs."""
    choices = []
    for piece in pieces:
        node = parse(piece)
        choices.append(node.items if isinstance(node, Collection) and r"\pm" in piece else (node,))
    combinations = []
    for combination in product(*choices):
        combinations.append(combination)
        if len(combinations) > _MAX_ALTERNATIVES:
            break
    return combinations


def _joined_signs(text: str) -> str:
    return text.replace("+ ", "+").replace("- ", "-").removeprefix("+").replace("=+", "=")


def _enclosed(text: str) -> tuple[str, str, str] | None:
    """Opening bracket, content, closing bracket where one pair of brackets holds the whole text."""
    parts = tokens(text)
    if len(parts) < 2 or parts[0] not in ("(", "[", r"\{", "{") or parts[-1] not in (")", "]", r"\}", "}"):
        return None
    depth = 0
    for index, token in enumerate(parts):
        depth += (token in _OPENING) - (token in _CLOSING)
        if depth == 0 and index < len(parts) - 1:
            return None
    return (parts[0], "".join(parts[1:-1]), parts[-1]) if depth == 0 else None


def _split(text: str, thousands: bool = True) -> list[str]:
    """The parts between top-level separators; the comma of 1,234 is none, but that of (1,234) is."""
    if thousands and _THOUSANDS.fullmatch(text):
        return [text]
    pieces: list[str] = [""]
    depth = 0
    for token in tokens(text):
        depth += (token in _OPENING or token == r"\begin") - (token in _CLOSING or token == r"\end")
        if depth == 0 and token in _SEPARATORS:
            pieces.append("")
        else:
            pieces[-1] += token
    return [piece.strip() for piece in pieces if piece.strip()] or [text]


def _interval(text: str) -> Row | None:
    """`-2 \\le x < 7` and `x > 5` as intervals of x."""
    parts = _RELATION.split(text)
    sides, signs = [side.strip() for side in parts[::2]], parts[1::2]
    if len(signs) not in (1, 2) or not all(sides):
        return None
    upward = [sign in ("<", r"\le") for sign in signs]
    if len(set(upward)) > 1:
        return None
    if not upward[0]:
        sides, signs = sides[::-1], signs[::-1]
    closed = [sign in (r"\le", r"\ge") for sign in signs]
    if len(signs) == 2:
        low, name, high = sides
    elif _VARIABLE.match(sides[0]):
        (name, high), low, closed = sides, r"-\infty", [False, *closed]
    elif _VARIABLE.match(sides[1]):
        (low, name), high, closed = sides, r"\infty", [*closed, False]
    else:
        return None
    if not _VARIABLE.match(name):
        return None
    brackets = ("[" if closed[0] else "(") + ("]" if closed[1] else ")")
    return Row(brackets, (Leaf(low), Leaf(high)), name)
