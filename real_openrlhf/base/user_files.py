"""Files of a user's own: FILE.py:NAME as a path, loaded, and what its code raised in one line."""

import ast
import hashlib
import re
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

from real_openrlhf.base.errors import first_line
from real_openrlhf.base.parsing import shortest


def file_of(name: str) -> Path | None:
    """The absolute path of the file in FILE.py:NAME; None for a name without a file."""
    file, colon, _ = name.rpartition(":")
    return Path(file).expanduser().resolve() if colon else None


def absolute(name: str) -> str:
    """The name with the absolute path of its file, because Ray's actors run in other directories."""
    path = file_of(name)
    return name if path is None else f"{path}:{name.rpartition(':')[2]}"


def load(name: str) -> object:
    """The object of this name in a file (FILE.py:NAME), or None; a ValueError if the file cannot be loaded."""
    path = file_of(name)
    if path is None:
        raise ValueError(f"{name!r} names no file. Give FILE.py:NAME")
    try:
        source = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}). Name a Python file that can be read") from None
    return vars(_module(path, source)).get(name.rpartition(":")[2])


def example_of(name: str) -> str:
    """`Did you mean FILE.py:NAME? ` if a clone's examples/objectives defines the name, else an empty text."""
    defines = re.compile(rf"^(?:def )?{re.escape(name)}(?:\(| =)", re.MULTILINE)
    files = (Path(__file__).parents[2] / "examples/objectives").glob("*.py")
    found = (file for file in files if defines.search(file.read_text(encoding="utf-8")))
    return next((f"Did you mean {shortest(file)}:{name}? " for file in found), "")


def functions_of(path: Path) -> list[str]:
    """Of a file: its functions, and what it makes by a call, such as `mine = Objective(...)`."""
    nodes = ast.parse(path.read_bytes()).body
    made = (node.targets[0] for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call))
    names = [*(node.name for node in nodes if isinstance(node, ast.FunctionDef)), *map(ast.unparse, made)]
    return [name for name in names if not name.startswith("_")]


def reward_function(path: Path | str) -> Callable:
    """The `reward_func` of a file; a ValueError if it has none."""
    function = load(f"{path}:reward_func")
    if not callable(function):
        raise ValueError(f"{path} has no reward_func. Define `def reward_func(queries, prompts, labels)` in it")
    return function


def reward_problem(path: Path) -> str | None:
    """The defect of a reward file, found by parsing it; it is run in rollout actors only."""
    try:
        tree = ast.parse(path.read_bytes())
    except OSError:
        return "does not exist. Give a Python file with reward_func, or a URL."
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"is not Python ({error}). Mend it."
    nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.AsyncFunctionDef)]  # nobody would await it
    names = {getattr(node, "name", None) or getattr(node, "id", None) for node in nodes}
    if not names & {"reward_func", "*"}:
        return "has no reward_func. Define `def reward_func(queries, prompts, labels)` in it, at its top."
    defined = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "reward_func"]
    if defined and not any(map(_may_take_three, defined)):
        return f"line {defined[0].lineno}: reward_func is called with 3 arguments. Take queries, prompts, labels."
    return None


def _may_take_three(function: ast.FunctionDef) -> bool:
    """Positional arguments; a decorator may change them."""
    takes = function.args
    names = [*takes.posonlyargs, *takes.args]
    few = len(names) - len(takes.defaults) <= 3 and None not in takes.kw_defaults
    return bool(function.decorator_list or (few and (takes.vararg or len(names) >= 3)))


@cache
def _module(path: Path, source: bytes) -> ModuleType:
    """Load the file as a module; once for each content."""
    module = ModuleType(f"real_users_file_{hashlib.sha256(source).hexdigest()[:12]}")
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # the file may import its neighbours, also later, inside its functions
    sys.modules[module.__name__] = module  # dataclasses in it look themselves up there
    try:
        exec(compile(source, path, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        line = getattr(error, "lineno", None)
        problem = f"line {line}, {raised(error)}" if line else raised(error, path)
        raise ValueError(f"{path} cannot be loaded: {problem}. Change it so that Python runs it") from error
    return module


def raised(error: BaseException, path: Path | str = "") -> str:
    """`TypeError: its first line`; with the last line of the user's file in its traceback, if `path` names one."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    where = f"line {lines[-1]}, " if lines else ""
    ends = ", which ends the process" if isinstance(error, SystemExit) else ""
    return f"{where}{type(error).__name__}: {first_line(error)}{ends}"
