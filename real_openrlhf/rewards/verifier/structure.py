"""The shape of an answer: lists, tuples, intervals, unions, ratios and matrices, down to leaves of text.

Pure text work: what makes two trees equal is in `matching`, what makes two leaves equal is its caller's business.
"""

import re
from dataclasses import dataclass
from itertools import product

from real_openrlhf.rewards.verifier import labels
from real_openrlhf.rewards.verifier.clock import Time, time_of_day
from real_openrlhf.rewards.verifier.normalise import tokens

_MAX_ALTERNATIVES = 64


@dataclass(frozen=True)
class Leaf:
    text: str


@dataclass(frozen=True)
class Clock:
    """A time of day; `3:10` may also be meant as a ratio."""

    text: str
    time: Time


@dataclass(frozen=True)
class Row:
    """A tuple, point, interval or congruence: the order and the brackets count."""

    brackets: str
    items: tuple["Node", ...]
    name: str = ""  # the variable of an interval that was written as an inequality
    inequality: str = ""  # and that inequality
    names: tuple[str, ...] = ()  # x and y of `(x,y) = (1,2)`


@dataclass(frozen=True)
class Assignment:
    """`x = 1, y = 2`: several unknowns with a value each."""

    names: tuple[str, ...]
    items: tuple["Node", ...]


@dataclass(frozen=True)
class Ratio:
    """`1:2:3`, equal up to a factor."""

    items: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Collection:
    """A set, list of solutions or union: the order does not count."""

    items: tuple["Node", ...]


@dataclass(frozen=True)
class Matrix:
    rows: tuple[tuple["Node", ...], ...]
    text: str

    def transposed(self) -> "Matrix":
        return Matrix(tuple(zip(*self.rows, strict=True)), f"({self.text})^{{T}}")


Node = Leaf | Clock | Row | Assignment | Ratio | Collection | Matrix

_OPENING = ("(", "[", "{", r"\{", r"\lfloor", r"\lceil")
_CLOSING = (")", "]", "}", r"\}", r"\rfloor", r"\rceil")
_ALTERNATIVES = (";", r"\text{or}")
_SEPARATORS = (",", r"\cup", r"\text{and}", *_ALTERNATIVES)
_NAMES = re.compile(r"^\(?([a-zA-Z](?:_\{\w+\})?(?:,[a-zA-Z](?:_\{\w+\})?)+)\)?$")
_MEMBER = re.compile(r"^(?:[^,;=(){}\[\]]{1,12}|\([a-zA-Z](?:,[a-zA-Z])+\))\\in(?![a-zA-Z])(.+)$", re.DOTALL)
_MATRIX = re.compile(r"^\\begin\{([pbB]?matrix|smallmatrix|array)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}$", re.DOTALL)
_SYSTEM = re.compile(
    r"^(?:\\\{)?\\begin\{(cases|aligned|array|matrix)\}(?:\{[lcr|]*\})?(.*)\\end\{\1\}(?:\\\})?$", re.DOTALL
)
_NEW_LINE = re.compile(r"\\\\")
_TRANSPOSED = re.compile(r"^(.+)\^\{(?:T|\\top|\\text\{T\})\}$", re.DOTALL)
_UNIT_VECTORS = re.compile(r"(?:([+-]?[^+-]*)\\hat\{([ijk])\})")
_POINT = re.compile(r"^[A-Z](?:_\{\w+\}|\^\{(?:\\prime)+\})*(\(.*\))$", re.DOTALL)
_CONGRUENCE = re.compile(r"^(?:(.*?)\\equiv ?)?(.*)\\pmod\{(\w+)\}$", re.DOTALL)
_THOUSANDS = re.compile(r"(?:[-$]|\\cdot ?|^)*\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)")
RELATION = re.compile(r"(\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|<|>) ?")
_REVERSED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_VARIABLE = re.compile(r"^(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{[^{}]*\})?(?:\([a-z]\))?$")


def parse(text: str) -> Node:
    """The tree of a normalised answer."""
    text = text.strip().removeprefix("+")
    congruence = _CONGRUENCE.match(text)
    if congruence and text.count(r"\pmod") == 1:
        name, residues, modulus = congruence.groups()
        return Row("mod", (parse(residues), Leaf(modulus)), (name or "").strip())
    member = _MEMBER.match(text)
    if member:
        text = member[1].strip()
    alternatives = split(text, _ALTERNATIVES)
    if len(alternatives) > 1:
        nodes = [parse(piece) for piece in alternatives]
        if any(isinstance(node, Assignment) for node in nodes):
            return _collection(nodes)
    pieces = split(text)
    if len(pieces) > 1:
        return _collection([parse(piece) for piece in pieces])
    return _item(text)


def split(text: str, separators: tuple[str, ...] = _SEPARATORS, thousands: bool = True) -> list[str]:
    """The parts between top-level separators; the comma of 1,234 is none, but that of (1,234) is."""
    if thousands and _THOUSANDS.fullmatch(text):
        return [text]
    pieces: list[str] = [""]
    depth = 0
    for token in tokens(text):
        depth += (token in _OPENING or token == r"\begin") - (token in _CLOSING or token == r"\end")
        if depth == 0 and token in separators:
            pieces.append("")
        else:
            pieces[-1] += token
    return [piece.strip() for piece in pieces if piece.strip()] or [text]


def enclosed(text: str) -> tuple[str, str, str] | None:
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


def _collection(items: list[Node]) -> Node:
    flat: list[Node] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Collection) else [item])
    kept: list[Node] = []
    for item in _assignments(flat):
        # A solution that is given twice is one; of bare numbers each counts, they may be roots.
        if item not in kept or (isinstance(item, Leaf) and "=" not in item.text):
            kept.append(item)
    return kept[0] if len(kept) == 1 else Collection(tuple(kept))


def _assignments(items: list[Node]) -> list[Node]:
    """`x=1, y=2, x=3, y=4` as two assignments; `x=1, x=3` and `x_{1}=1, x_{2}=3` are a list of values of x."""
    parts = [_labelled(item) for item in items]
    names = [name for name, _ in parts]
    if not all(names):
        if names[0] and not any(names[1:]):
            return [parse(parts[0][1]), *items[1:]]  # a = 4, -8, -10
        return items
    period = next((index for index in range(1, len(names)) if names[index] == names[0]), len(names))
    group = tuple(names[:period])
    if (
        period == 1
        or len(set(group)) < period
        or labels.are_roots(names)
        or group * (len(names) // period) != tuple(names)
    ):
        return items
    values = [parse(value) for _, value in parts]
    return [Assignment(group, tuple(values[start : start + period])) for start in range(0, len(values), period)]


def _labelled(node: Node) -> tuple[str, str]:
    name, value = labels.named(node.text) if isinstance(node, Leaf) else ("", "")
    return (name, value) if name and not labels.is_equation(name, value) else ("", "")


def _item(text: str) -> Node:
    array = _array(text)
    if array:
        return array
    name, value = labels.named(text)
    if name:
        names = _NAMES.match(name)
        if not names and labels.is_equation(name, value):
            return Leaf(text)
        node = (_named_ratio(name, value) if ":" in name else None) or _item(value)
        if names and isinstance(node, Row):
            return Row(node.brackets, node.items, names=tuple(names[1].split(",")))
        return Leaf(text) if isinstance(node, Leaf) and not names else node
    time = time_of_day(text)
    if time:
        return Clock(text, time)
    body = enclosed(text)
    if body is not None:
        opening, inner, closing = body
        if opening == r"\{":
            return _set(inner)
        pieces = split(inner, thousands=False)
        if len(pieces) > 1:
            return _collection([Row(opening + closing, combination) for combination in _combinations(pieces)])
        if opening + closing in ("()", "[]", "{}"):
            return parse(inner)
    if r"\pm" in text or r"\mp" in text:
        plus = text.replace(r"\pm", "+").replace(r"\mp", "-")
        minus = text.replace(r"\pm", "-").replace(r"\mp", "+")
        return _collection([_item(_joined_signs(plus)), _item(_joined_signs(minus))])
    return _unit_vectors(text) or _relation(text) or ratio(text) or Leaf(text)


def _set(inner: str) -> Node:
    pieces = split(inner, thousands=False)
    if not inner.strip():
        return Leaf(r"\emptyset")
    if pieces == [r"\emptyset"]:
        return Row(r"\{\}", (Leaf(r"\emptyset"),))  # a set with a member
    return _collection([parse(piece) for piece in pieces])


def _array(text: str) -> Node | None:
    """A matrix, its transpose, or the lines of a system or of cases."""
    if r"\begin{" not in text and "^{T}" not in text and r"^{\top}" not in text:
        return None
    body = enclosed(text)
    if body and body[1].startswith(r"\begin{") and body[0] != r"\{":
        return _array(body[1])
    matrix, system, transposed = _MATRIX.match(text), _SYSTEM.match(text), _TRANSPOSED.match(text)
    if transposed:
        node = parse(transposed[1])
        if isinstance(node, Matrix) and len({len(row) for row in node.rows}) == 1:
            return node.transposed()
        return node if isinstance(node, Row) else None
    if matrix and "=" not in text:
        rows = [line for line in _NEW_LINE.split(matrix[2]) if line.strip()]
        return Matrix(tuple(tuple(_item(cell.strip()) for cell in line.split("&")) for line in rows), text)
    if system:
        rows = [line.strip().strip(",;") for line in _NEW_LINE.split(system[2]) if line.strip()]
        if system[1] == "cases" and any("&" in row for row in rows):
            pairs = (tuple(Leaf(cell.strip().strip(",")) for cell in row.split("&")) for row in rows)
            return Collection(tuple(Row("case", pair) for pair in pairs))
        return parse(",".join(row.replace("&", "") for row in rows))
    return Leaf(text) if "matrix}" in text and "=" not in text else None


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


def _unit_vectors(text: str) -> Row | None:
    r"""`3\hat{i}-\hat{k}` as (3, 0, -1)."""
    terms = _UNIT_VECTORS.findall(text)
    if not terms or _UNIT_VECTORS.sub("", text).strip():
        return None
    parts = {unit: coefficient.strip().removeprefix("+").removesuffix(r"\cdot") for coefficient, unit in terms}
    parts = {unit: coefficient + "1" * (coefficient in ("", "-")) for unit, coefficient in parts.items()}
    return Row("()", tuple(Leaf(parts.get(unit, "0")) for unit in ("ijk" if "k" in parts else "ij")))


def ratio(text: str) -> Ratio | None:
    if ":" not in text or RELATION.search(text) or re.search(r"\\(?:in|to|ldots|mapsto)(?![a-zA-Z])|\|", text):
        return None
    parts = split(text, (":",))
    return Ratio(tuple(parts)) if len(parts) > 1 else None


def _named_ratio(name: str, value: str) -> Ratio | None:
    names, parts = split(name, (":",)), split(value, (":",))
    return Ratio(tuple(parts), tuple(names)) if len(names) == len(parts) else ratio(value)


def labelled_point(text: str) -> Row | None:
    """The tuple of `P(3,4)`, which by itself may also be the value of a function."""
    match = _POINT.match(text)
    point = parse(match[1]) if match else None
    return point if isinstance(point, Row) else None


def _relation(text: str) -> Row | Leaf | None:
    """`-2 \\le x < 7` and `x > 5` as intervals of x, other inequalities with all their signs upward."""
    parts = RELATION.split(text)
    sides, signs = [side.strip() for side in parts[::2]], parts[1::2]
    if not signs or not all(sides):
        return None
    upward = [sign in ("<", r"\le") for sign in signs]
    if len(set(upward)) > 1:
        return None
    if not upward[0]:
        sides, signs = sides[::-1], [_REVERSED[sign] for sign in signs[::-1]]
    text = sides[0] + "".join(
        f"{sign}{' ' * (sign != '<')}{side}" for sign, side in zip(signs, sides[1:], strict=True)
    )
    closed = [sign == r"\le" for sign in signs]
    if len(signs) == 2:
        low, name, high = sides
    elif len(signs) == 1 and _VARIABLE.match(sides[0]):
        (name, high), low, closed = sides, r"-\infty", [False, *closed]
    elif len(signs) == 1 and _VARIABLE.match(sides[1]):
        (low, name), high, closed = sides, r"\infty", [*closed, False]
    else:
        return Leaf(text)
    if not _VARIABLE.match(name):
        return Leaf(text)
    brackets = ("[" if closed[0] else "(") + ("]" if closed[1] else ")")
    return Row(brackets, (Leaf(low), Leaf(high)), name, text)
