r"""A reward file for questions that gym_questions.py wrote: 1 if the text in the last \boxed{} is right, else 0.

Name it with --reward.remote_url of `train`, or --grader of `eval`.

A scorer of reasoning-gym is used unchanged if it only reads the model's text and never runs it, and if full marks mean
a right answer. The scorers were reviewed in release 0.1.25; other releases are refused.
"""

import ast
import importlib.util
import json
import math
import operator
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from types import ModuleType
from typing import Any

RELEASE = "0.1.25"
ABSENT = ("cellpylib", "pycosat", "zss")  # reasoning_gym imports them at its top; they have no wheels
BY_TARGET = ("countdown", "puzzle24")  # their scorers evaluate the answer: `reaches_target` reads it instead
REFUSED = {
    **dict.fromkeys(
        ("binary_matrix", "spiral_matrix", "string_insertion", "n_queens", "bitwise_arithmetic", "number_sorting")
        + ("intermediate_integration", "polynomial_multiplication", "simple_integration"),
        "its scorer runs the answer as a program",
    ),
    **dict.fromkeys(
        ("coin_flip", "gsm_symbolic", "time_intervals", "arc_agi", "rearc"), "its scorer misjudges some answers"
    ),
    **dict.fromkeys(
        ("codeio", "game_of_life", "game_of_life_halting", "zebra_puzzles"), "one of its packages has no wheel"
    ),
    "composite": "make each of its tasks, and join the files",
}
OPERATIONS: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}
SIGNS = {"×": "*", r"\times": "*", r"\cdot": "*", "÷": "/", r"\div": "/", "−": "-"}


@lru_cache(maxsize=1)
def library() -> ModuleType:
    """reasoning_gym; packages of ABSENT that are not installed are empty modules during its import."""
    if importlib.util.find_spec("reasoning_gym") is None or version("reasoning-gym") != RELEASE:
        raise ImportError(f"reasoning-gym {RELEASE} is not installed. `bash examples/scripts/setup_env.sh` brings it")
    absent = [name for name in ABSENT if importlib.util.find_spec(name) is None]
    sys.modules.update({name: ModuleType(name) for name in absent})
    try:
        import reasoning_gym

        return reasoning_gym
    finally:
        for name in absent:
            del sys.modules[name]


def dataset(task: str, settings: dict[str, Any], seed: int = 0, size: int = 1) -> Any:
    """reasoning-gym's data set; lists in `settings`, from JSON, become tuples where the task has tuples."""
    if task in REFUSED or task not in library().factory.DATASETS:
        offered = sorted({*library().factory.DATASETS} - {*REFUSED})
        raise ValueError(f"{task}: {REFUSED.get(task, 'no such task')}. There are: {', '.join(offered)}")
    defaults = vars(library().factory.DATASETS[task][1]())
    tuples = {key: tuple(value) for key, value in settings.items() if isinstance(defaults.get(key), tuple)}
    return library().create_dataset(task, seed=seed, size=size, **settings | tuples)


@lru_cache(maxsize=64)
def scorer(task: str, settings: str) -> Any:
    return dataset(task, json.loads(settings)).score_answer


def is_right(label: str, answer: str) -> bool:
    """Whether the answer is exactly right. reasoning-gym's 0.99 may be a near miss: 1.0 alone counts."""
    question = json.loads(label)
    if question["task"] in BY_TARGET:
        try:
            return reaches_target(question["metadata"], answer)
        except (ValueError, TypeError, LookupError, SyntaxError, ArithmeticError, RecursionError):
            return False  # not in the form of an answer
    return bool(scorer(question["task"], json.dumps(question["settings"]))(answer, question) >= 1.0)


def reaches_target(metadata: dict, answer: str) -> bool:
    """Whether the answer reaches the target with the numbers of the question, each as often as given."""
    for sign, plain in SIGNS.items():
        answer = answer.replace(sign, plain)
    tree = ast.parse(answer.strip(), mode="eval").body
    used: list[Any] = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return sorted(used) == sorted(metadata["numbers"]) and value(tree) == metadata.get("target", 24)


def value(tree: ast.AST) -> Fraction:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return Fraction(tree.value)
    if isinstance(tree, ast.BinOp):
        return OPERATIONS[type(tree.op)](value(tree.left), value(tree.right))
    if isinstance(tree, ast.UnaryOp):
        return OPERATIONS[type(tree.op)](value(tree.operand))
    raise ValueError(f"{type(tree).__name__} in an arithmetic expression")


def boxed(response: str) -> str | None:
    r"""The text of the last \boxed{...}; braces in it are in pairs."""
    text, depth = response.rpartition(r"\boxed{")[2], 1
    for at, letter in enumerate(text if r"\boxed{" in response else ""):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth == 0:
            return re.sub(r"^\\text\{(.*)\}$", r"\1", text[:at].strip()) or None
    return None


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict:
    (query,), (prompt,), (label,) = queries, prompts, labels
    response = query.removeprefix(prompt) if query.startswith(prompt) else query.rpartition(prompt[-64:])[2]
    answer = boxed(response)
    try:
        score = float(answer is not None and (answer == json.loads(label)["answer"] or is_right(label, answer)))
    except Exception:  # some scorers raise on prose: ungraded
        score = math.nan
    about = {"label/no_answer": float(answer is None)}  # TRPA's lowest level
    return {"rewards": 0.0 if math.isnan(score) else score, "scores": score, "extra_logs": about}


library()
