"""Whether two answers of some shape say the same; what makes two leaves equal is the caller's business.

So the same rules serve the cheap exact comparison and the symbolic one.
"""

import re
from collections.abc import Callable
from typing import TypeVar

from real_openrlhf.rewards.verifier import exact, labels, structure
from real_openrlhf.rewards.verifier.structure import Assignment, Clock, Collection, Leaf, Matrix, Node, Ratio, Row

# Gold text, answer text, how many digits make a decimal stand for what it rounds.
LeafEqual = Callable[[str, str, int], bool]
Several = Assignment | Row | Collection
Side = TypeVar("Side")
_DIGITS_IN_VECTORS = 3
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def equal(gold: Node, answer: Node, leaf_equal: LeafEqual, digits: int = exact.ROUNDED_DIGITS) -> bool:
    """Whether the two trees say the same; `leaf_equal` decides at the leaves."""
    if isinstance(gold, Leaf) and isinstance(answer, Leaf):
        return leaf_equal(gold.text, answer.text, digits)
    for kind, rule in _RULES:
        if isinstance(gold, kind) or isinstance(answer, kind):
            return rule(gold, answer, leaf_equal)
    return False


def _equal_times(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    if isinstance(gold, Clock) and isinstance(answer, Clock):
        return gold.time.same(answer.time)
    return equal(_untimed(gold), _untimed(answer), leaf_equal)


def _untimed(node: Node) -> Node:
    """Beside a number `3:10` is a ratio and `3 p.m.` is 3, but `8:34 p.m.` is no number."""
    if not isinstance(node, Clock):
        return node
    if ":" not in node.text:
        return Leaf(node.text.partition(r"\text")[0].rstrip("apmAPM. "))
    return (None if re.search("[a-zA-Z]", node.text) else structure.ratio(node.text)) or Ratio(())


def _equal_matrices(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        shape = [len(row) for row in gold.rows]
        return shape == [len(row) for row in answer.rows] and _in_order(_entries(gold), _entries(answer), leaf_equal)
    matrix, other = (gold, answer) if isinstance(gold, Matrix) else (answer, gold)
    assert isinstance(matrix, Matrix)
    if isinstance(other, Row) and other.brackets in ("()", "[]") and 1 in (len(matrix.rows), len(matrix.rows[0])):
        # a column or row vector written as a tuple
        return _in_order(*_gold_first(matrix is gold, _entries(matrix), other.items), leaf_equal)
    if isinstance(other, Leaf) and "matrix}" in other.text:
        # a product or sum of matrices
        return leaf_equal(*_gold_first(matrix is gold, matrix.text, other.text), exact.ROUNDED_DIGITS)
    return False


def _gold_first(is_gold: bool, one: Side, other: Side) -> tuple[Side, Side]:
    return (one, other) if is_gold else (other, one)


def _entries(matrix: Matrix) -> tuple[Node, ...]:
    return tuple(item for row in matrix.rows for item in row)


def _equal_ratios(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    if isinstance(gold, Ratio) and isinstance(answer, Ratio) and gold.names and answer.names:
        if sorted(gold.names) != sorted(answer.names):
            return False
        answer = Ratio(tuple(answer.items[answer.names.index(name)] for name in gold.names))
    one, other = _quotients(gold), _quotients(answer)
    return len(one) == len(other) and all(
        leaf_equal(g, a, exact.ROUNDED_DIGITS) for g, a in zip(one, other, strict=True)
    )


def _quotients(node: Node) -> list[str]:
    """Of each part and the next: 1:2:3 is 1/2 and 2/3, and 1:2 is 1/2."""
    if isinstance(node, Ratio):
        return [f"\\frac{{{one}}}{{{two}}}" for one, two in zip(node.items, node.items[1:], strict=False)]
    return [node.text] if isinstance(node, Leaf) else []


def _equal_assignments(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    """By name where both have names, else in order: the alphabet's for variables, the given one for other names."""
    if not isinstance(gold, Several) or not isinstance(answer, Several):
        return False
    names, other_names = _names(gold), _names(answer)
    if names and other_names:
        if sorted(names) == sorted(other_names):
            in_gold_order = tuple(answer.items[other_names.index(name)] for name in names)
            return _in_order(gold.items, in_gold_order, leaf_equal)
        if not any(r"\text" in name for name in _written_names(gold) + _written_names(answer)):
            return False
    return _in_order(_natural_order(gold), _natural_order(answer), leaf_equal)


def _names(node: Several) -> list[str]:
    return [labels.canonical(name) for name in _written_names(node)]


def _written_names(node: Several) -> tuple[str, ...]:
    return () if isinstance(node, Collection) else node.names


def _natural_order(node: Several) -> tuple[Node, ...]:
    if isinstance(node, Assignment) and "".join(sorted(node.names)) in _ALPHABET:
        return tuple(item for _, item in sorted(zip(node.names, node.items, strict=True), key=lambda pair: pair[0]))
    return node.items


def _equal_rows(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    if "mod" in (getattr(gold, "brackets", ""), getattr(answer, "brackets", "")):
        return _equal_congruences(gold, answer, leaf_equal)
    if isinstance(gold, Row) and isinstance(answer, Row):
        if gold.names and answer.names:
            return gold.brackets == answer.brackets and _equal_assignments(gold, answer, leaf_equal)
        if gold.inequality and answer.inequality and (gold.name != answer.name or _has_letter(gold, answer)):
            return gold.inequality == answer.inequality or leaf_equal(
                gold.inequality, answer.inequality, exact.ROUNDED_DIGITS
            )
        names = {gold.name, answer.name} - {""}
        return gold.brackets == answer.brackets and len(names) < 2 and _in_order(gold.items, answer.items, leaf_equal)
    row, other = (gold, answer) if isinstance(gold, Row) else (answer, gold)
    assert isinstance(row, Row)
    if isinstance(other, Collection):
        # A tuple written without its parentheses, or a list written with them.
        items = _gold_first(row is gold, row.items, other.items)
        return row.brackets == "()" and not row.name and _in_order(*items, leaf_equal)
    if isinstance(other, Leaf) and row.inequality and structure.RELATION.search(other.text):
        return leaf_equal(*_gold_first(row is gold, row.inequality, other.text), exact.ROUNDED_DIGITS)
    point = structure.labelled_point(other.text) if isinstance(other, Leaf) else None
    return point is not None and _equal_rows(*_gold_first(row is gold, row, point), leaf_equal)


def _equal_congruences(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    """With one modulus, up to its multiples; a residue alone is taken for the congruence."""
    if not isinstance(gold, Row) or not isinstance(answer, Row):
        residue, other = (node.items[0] if isinstance(node, Row) else node for node in (gold, answer))
        return equal(residue, other, leaf_equal)
    names = {gold.name, answer.name} - {""}
    if gold.brackets != answer.brackets or len(names) > 1 or gold.items[1] != answer.items[1]:
        return False
    texts = [node.text if isinstance(node, Leaf) else "" for node in (gold.items[0], answer.items[0], gold.items[1])]
    if all(text.removeprefix("-").isdigit() and len(text) < 40 for text in texts) and int(texts[2]) > 0:
        return (int(texts[0]) - int(texts[1])) % int(texts[2]) == 0
    return equal(gold.items[0], answer.items[0], leaf_equal)


def _has_letter(*rows: Row) -> bool:
    return any(isinstance(item, Leaf) and labels.has_letter(item.text) for row in rows for item in row.items)


def _equal_collections(gold: Node, answer: Node, leaf_equal: LeafEqual) -> bool:
    """In any order, each item as often as it occurs."""
    if not isinstance(gold, Collection) or not isinstance(answer, Collection) or len(gold.items) != len(answer.items):
        return False
    rest = list(answer.items)
    for wanted in gold.items:
        # The same text first: it spares comparisons, and a pair that is undecided when a twin is there.
        found = next((item for item in rest if item == wanted), None)
        if found is None:
            found = next((item for item in rest if equal(wanted, item, leaf_equal)), None)
        if found is None:
            return False
        rest.remove(found)
    return True


def _in_order(gold: tuple[Node, ...], answer: tuple[Node, ...], leaf_equal: LeafEqual) -> bool:
    if len(gold) != len(answer):
        return False
    digits = min(_enough_digits(gold), _enough_digits(answer))
    return all(equal(g, a, leaf_equal, digits) for g, a in zip(gold, answer, strict=True))


def _enough_digits(items: tuple[Node, ...]) -> int:
    """Decimals of three digits are enough in a vector that has six in all: (0.333, 0.667) is (1/3, 2/3)."""
    written = sum(exact.significant_digits(item.text) for item in items if isinstance(item, Leaf))
    return _DIGITS_IN_VECTORS if written >= exact.ROUNDED_DIGITS and len(items) > 1 else exact.ROUNDED_DIGITS


# The first kind that either side is of decides.
_RULES: tuple[tuple[type, Callable[[Node, Node, LeafEqual], bool]], ...] = (
    (Clock, _equal_times),
    (Matrix, _equal_matrices),
    (Ratio, _equal_ratios),
    (Assignment, _equal_assignments),
    (Row, _equal_rows),
    (Collection, _equal_collections),
)
