"""The tasks of reasoning-gym, an optional package, and the check of answers. Run as a program it is the worker.

A scorer is used unchanged if it only reads the model's text and never runs it, and if full marks mean a right answer.
The scorers were reviewed in one release; other releases are refused. The package is imported when a task is used.
"""

import ast
import importlib.util
import json
import operator
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import version
from types import ModuleType
from typing import Any

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.files import parsed
from real_openrlhf.base.parsing import did_you_mean
from same_answer import process

RELEASE = "0.1.25"
# Packages that reasoning_gym imports at its top. They have no wheels, so set-up leaves them out.
ABSENT = ("cellpylib", "pycosat", "zss")
SCORER_RAISED = "scorer_raised"  # some scorers raise on any prose
BY_TARGET = ("countdown", "puzzle24")  # their scorers evaluate the answer: `_reaches_target` reads it instead
RUNS_ANSWERS = (
    *("binary_matrix", "spiral_matrix", "string_insertion", "n_queens", "bitwise_arithmetic", "number_sorting"),
    *("intermediate_integration", "polynomial_multiplication", "simple_integration"),  # by sympy's parser
)
MISJUDGES = (
    *("coin_flip", "gsm_symbolic", "time_intervals"),  # full marks for some wrong answers
    *("arc_agi", "rearc"),  # they compare tuples with the lists that JSON makes of them
)
REFUSED = {
    **dict.fromkeys(RUNS_ANSWERS, "its scorer runs the answer as a program"),
    **dict.fromkeys(MISJUDGES, "its scorer misjudges some answers"),
    **dict.fromkeys(
        ("codeio", "game_of_life", "game_of_life_halting", "zebra_puzzles"), "one of its packages has no wheel"
    ),
    "composite": "a JSON file with several tasks does the same",
}
INSTALL = (
    "In a checkout `bash examples/scripts/setup_env.sh cpu` brings it; elsewhere `pip install 'real-openrlhf[gym]'`, "
    "which compiles pycosat with gcc."
)
_OPERATIONS: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}
_SIGNS = {"×": "*", r"\times": "*", r"\cdot": "*", "÷": "/", r"\div": "/", "−": "-"}


def require() -> None:
    """Raise unless the right release of reasoning-gym is installed; does not import it, which takes seconds."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise UserError(f"reasoning_gym is not installed. {INSTALL}")
    if (found := version("reasoning-gym")) != RELEASE:
        raise UserError(f"reasoning_gym is {found}, and its scorers were checked for {RELEASE}. Install that release.")


@lru_cache(maxsize=1)
def library() -> ModuleType:
    """Import reasoning_gym; packages of ABSENT that are not installed are empty modules during the import."""
    require()
    absent = [name for name in ABSENT if importlib.util.find_spec(name) is None]
    sys.modules.update({name: ModuleType(name) for name in absent})
    try:
        import reasoning_gym

        return reasoning_gym
    finally:
        for name in absent:
            del sys.modules[name]


def offered() -> list[str]:
    return sorted(set(library().factory.DATASETS) - set(REFUSED))


def check(name: str) -> None:
    if name in REFUSED:
        raise UserError(f"{name} is not offered: {REFUSED[name]}.")
    if name not in offered():
        near = did_you_mean(name, offered())
        every = "`real-openrlhf data gym --out DIR` lists all" if near else f"There are: {', '.join(offered())}"
        raise UserError(f"reasoning-gym has no task {name}. {near}{every}")


def dataset(name: str, settings: dict[str, Any], seed: int = 0, size: int = 1) -> Any:
    """reasoning-gym's data set of a task; lists in `settings`, from JSON, become tuples where the task has tuples."""
    defaults = vars(library().factory.DATASETS[name][1]())
    tuples = {key: tuple(value) for key, value in settings.items() if isinstance(defaults.get(key), tuple)}
    try:
        return library().create_dataset(name, seed=seed, size=size, **settings | tuples)
    except (AssertionError, TypeError, ValueError) as error:
        known = ", ".join(sorted(set(defaults) - {"seed", "size"}))
        raise UserError(f"{name} cannot have these settings ({first_line(error)}). There are: {known}") from error


def entry(label: Any) -> dict[str, Any]:
    """The parts of a label that its scorer reads. With the answer None, only the scorer can tell what is right."""
    content = parsed(label) if isinstance(label, str) else label
    return {key: content[key] for key in ("task", "settings", "answer", "metadata")}


def right(label: str, answer: str) -> bool:
    """Whether the answer is exactly right. reasoning-gym's 0.99 may be a near miss: 1.0 alone counts."""
    content = json.loads(label)
    task = content["task"]
    if task in BY_TARGET:
        try:
            return _reaches_target(content["metadata"], answer)
        except (ValueError, TypeError, LookupError, SyntaxError, ArithmeticError, RecursionError):
            return False  # not in the form of an answer
    try:
        return bool(_scorer(task, json.dumps(content["settings"]))(answer, content) >= 1.0)
    except MemoryError:
        raise
    except Exception as error:
        raise process.NoVerdict(SCORER_RAISED, f"{task}: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=64)
def _scorer(name: str, settings: str) -> Any:
    """The scorer of an offered task; a label that names another task raises, whoever wrote it."""
    check(name)
    return dataset(name, json.loads(settings)).score_answer


def _reaches_target(metadata: dict, answer: str) -> bool:
    """Whether the answer reaches the target with the numbers of the question, each as often as given."""
    for sign, plain in _SIGNS.items():
        answer = answer.replace(sign, plain)
    tree = ast.parse(answer.strip(), mode="eval").body
    used: list[Any] = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return sorted(used) == sorted(metadata["numbers"]) and _value(tree) == metadata.get("target", 24)


def _value(tree: ast.AST) -> Fraction:
    if isinstance(tree, ast.Constant) and type(tree.value) is int:
        return Fraction(tree.value)
    if isinstance(tree, ast.BinOp):
        return _OPERATIONS[type(tree.op)](_value(tree.left), _value(tree.right))
    if isinstance(tree, ast.UnaryOp):
        return _OPERATIONS[type(tree.op)](_value(tree.operand))
    raise ValueError(f"{type(tree).__name__} in an arithmetic expression")


if __name__ == "__main__":
    process.serve({"gym": right}, prepare=library)
