"""When an answer is right, for tasks whose scorer in reasoning-gym evaluates it or gives full marks to wrong answers.

Each rule takes the entry and the answer. What it raises means that the answer has not the form of one.
"""

import ast
import json
import math
import operator
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

Entry = dict
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_OPERATIONS: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}
_SIGNS = {"×": "*", r"\times": "*", r"\cdot": "*", "÷": "/", r"\div": "/", "−": "-"}


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _same_text(entry: Entry, answer: str) -> bool:
    return _rows(answer) == _rows(entry["answer"])


def _one_of_the_boards(entry: Entry, answer: str) -> bool:
    return any(_rows(answer) == _rows(board) for board in entry["metadata"]["valid_answers"])


def _same_integer(entry: Entry, answer: str) -> bool:
    """Also as 0x1f."""
    return int(answer, 0) == int(entry["answer"], 0)


def _same_numbers(entry: Entry, answer: str) -> bool:
    """All of them: for the scorer the first one is enough, or a near one."""
    mine, gold = (list(map(float, _NUMBER.findall(text.replace(",", "")))) for text in (answer, entry["answer"]))
    return mine == gold != []


def _same_list(entry: Entry, answer: str) -> bool:
    """Of numbers; the scorer allows each to be 1 away."""
    mine, gold = (list(map(float, json.loads(text.replace("'", '"')))) for text in (answer, entry["answer"]))
    return mine == gold


def _same_probability(entry: Entry, answer: str) -> bool:
    """To four digits; for the scorer 0 is right wherever the gold is below 0.0001."""
    return math.isclose(Fraction(answer.replace(",", "")), Fraction(entry["answer"]), rel_tol=1e-4)


def _reaches_target(entry: Entry, answer: str) -> bool:
    """With the numbers of the question, each as often as there."""
    for sign, plain in _SIGNS.items():
        answer = answer.replace(sign, plain)
    tree = ast.parse(answer.strip(), mode="eval").body
    used: list[Any] = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return sorted(used) == sorted(entry["metadata"]["numbers"]) and _value(tree) == entry["metadata"].get("target", 24)


def _value(tree: ast.AST) -> Fraction:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return Fraction(tree.value)
    if isinstance(tree, ast.BinOp):
        return _OPERATIONS[type(tree.op)](_value(tree.left), _value(tree.right))
    if isinstance(tree, ast.UnaryOp):
        return _OPERATIONS[type(tree.op)](_value(tree.operand))
    raise ValueError(f"{type(tree).__name__} in an arithmetic expression")


RULES: dict[str, Callable[[Entry, str], bool]] = {
    # reasoning-gym's scorers of these call eval
    "binary_matrix": _same_text,
    "spiral_matrix": _same_text,
    "string_insertion": _same_text,
    "n_queens": _one_of_the_boards,
    "bitwise_arithmetic": _same_integer,
    "number_sorting": _same_list,
    # these sympy's parser, which evaluates; puzzle24 takes any four numbers
    "countdown": _reaches_target,
    "puzzle24": _reaches_target,
    # these give full marks to some wrong answers
    "coin_flip": _same_probability,
    "gsm_symbolic": _same_numbers,
    "time_intervals": _same_numbers,
    # these compare tuples with the lists that JSON makes of them
    "arc_agi": _same_text,
    "rearc": _same_text,
}
