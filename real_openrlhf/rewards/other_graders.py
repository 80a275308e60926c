"""A worker process for the graders of others: the rules of the paper's baselines, and math-verify."""

import contextlib
import importlib.util
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any

from same_answer import process


def disco(gold: str, boxed: str) -> bool:
    """The grader of the paper's baselines: OpenRLHF's own, whose verdicts are those of DeepScaleR and DisCO."""
    grader = _openrlhf_grader()
    return grader.grade_answer(grader.extract_boxed_answer(boxed), gold)


@lru_cache(maxsize=1)
def _openrlhf_grader() -> ModuleType:
    """One file of OpenRLHF loaded by its path: importing its package pulls torch, DeepSpeed and more."""
    package = importlib.util.find_spec("openrlhf")
    if package is None or not package.submodule_search_locations:
        raise ImportError("the disco grader is OpenRLHF's own: install openrlhf")
    path = f"{package.submodule_search_locations[0]}/utils/math_utils.py"
    spec = importlib.util.spec_from_file_location("openrlhf_math_utils", path)
    assert spec and spec.loader  # as for every .py file
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Look like a thread of a Ray actor: in a main thread the file sets an alarm of 120 s, which would end the worker.
    module.threading = SimpleNamespace(current_thread=lambda: "a thread", main_thread=lambda: "another")
    return module


def by_math_verify(gold: str, text: str) -> bool:
    """math-verify as its README shows, without its timeouts: the client of the worker has a deadline."""
    import math_verify

    wanted, given = (math_verify.parse(written, parsing_timeout=None) for written in (f"\\boxed{{{gold}}}", text))
    return math_verify.verify(wanted, given, timeout_seconds=None)


def _load() -> None:
    """Load the libraries and compile their patterns, which takes seconds; a missing library fails the request."""
    for grader in GRADERS.values():
        with contextlib.suppress(ImportError):
            grader("1", r"\boxed{\frac{2}{2}}")


GRADERS: process.Graders = {"disco": disco, "math_verify": by_math_verify}

if __name__ == "__main__":
    process.serve(GRADERS, prepare=_load)
