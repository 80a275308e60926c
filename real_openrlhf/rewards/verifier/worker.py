"""The worker process: it runs our algebra, the grader of the paper's baselines, and math-verify."""

import importlib.util
from functools import lru_cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any

from real_openrlhf.rewards.verifier import compare, process

# Compared once before the first request, which then finds compiled patterns and warm caches.
_FIRST_FORMULA = (
    r"\lfloor\frac{2n-1}{5}\rfloor+x_{1}\cdot\log_{2}(n)!+3\sqrt{x}-m_{p}c^{2}\cos(\omega t-\frac{\pi}{4})=0"
)


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

    boxed, found = (math_verify.parse(one, parsing_timeout=None) for one in (f"\\boxed{{{gold}}}", text))
    return math_verify.verify(boxed, found, timeout_seconds=None)


if __name__ == "__main__":
    graders: process.Graders = {
        "robust": partial(compare.same, digits=True),
        "disco": disco,
        "math_verify": by_math_verify,
    }
    process.serve(graders, prepare=lambda: compare.same(_FIRST_FORMULA, "0", digits=True))
