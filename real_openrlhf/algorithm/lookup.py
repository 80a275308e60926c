"""Find an objective by name: a key of `OBJECTIVES`, or FILE.py:NAME, the form of all functions in a user's file.

Standard library only until a file is loaded.
"""

import hashlib
import inspect
import sys
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType

from real_openrlhf.algorithm.formulas import OBJECTIVES, Objective, TokenLoss


def find(name: str | Objective) -> Objective:
    """The objective, or a ValueError that says in one line why there is none."""
    if isinstance(name, Objective):
        return name
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    if file_of(name) is None:
        raise ValueError(
            f"unknown objective {name!r}: choose one of {', '.join(OBJECTIVES)}, or your own, FILE.py:NAME"
        )
    found, path, own = load(name), file_of(name), name.rpartition(":")[2]
    if isinstance(found, Objective):
        return found
    if not callable(found):
        raise ValueError(f"{path} defines no {own!r}. Give the name of a function (scores, groups, settings) in it")
    first, *_ = (found.__doc__ or "").strip().splitlines() or [""]
    # a token loss has (log_ratio, advantage, mask, group)
    kind = TokenLoss if len(inspect.signature(found).parameters) == 4 else Objective
    return kind(found, label=own, about=first, source=str(path))


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
        raise ValueError(f"{path} cannot be read ({error.strerror}). Give a Python file that can") from None
    return vars(_module(path, source)).get(name.rpartition(":")[2])


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
        lines = [
            str(frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
        ]
        line = getattr(error, "lineno", None) or (lines or ["?"])[-1]
        reason = (str(error).strip().splitlines() or [""])[0]
        raise ValueError(
            f"{path} cannot be loaded: line {line}, {type(error).__name__}: {reason}. Change it so that Python runs it"
        ) from error
    return module
