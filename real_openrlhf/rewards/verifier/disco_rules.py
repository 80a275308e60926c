r"""The rules of the paper's baselines: what follows `</think>`, its last `\boxed{}`, then mathd or sympy.

The grader is OpenRLHF's own, whose verdicts are those of DeepScaleR and DisCO; it can hang, so it runs in the worker.
"""

import importlib.util
from functools import lru_cache
from types import ModuleType, SimpleNamespace
from typing import Any


def final_text(response: str) -> str | None:
    """What DisCO grades: the text between the first `</think>` and the next."""
    parts = response.split("</think>", 2)
    return parts[1] if len(parts) > 1 else None


def boxed_text(text: str) -> str | None:
    """From the last box on; the grader finds the end of the box itself, and none is longer than this."""
    start = text.rfind("\\boxed")
    return text[start : start + 4_000] if start >= 0 else None


def same(gold: str, boxed: str) -> bool:
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
    # As in a Ray actor, where it sets no alarm: its alarm of 120 s would disarm the worker's own.
    module.threading = SimpleNamespace(current_thread=lambda: "a thread", main_thread=lambda: "another")
    return module
