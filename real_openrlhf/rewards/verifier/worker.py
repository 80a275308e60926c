"""The process that does algebra for one client: requests and replies are JSON lines on its pipes.

It may be killed at any moment: the client kills it at the deadline. It bounds its own memory and dies with the process
that started it. REAL_VERIFIER_FAULTS, a JSON object of faults (hang, oom, exit) and their markers, makes it fail on
purpose when a marker is in a gold or an answer: the paths for failures are tested for real.
"""

import ctypes
import gc
import importlib.util
import json
import logging
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from types import ModuleType, SimpleNamespace
from typing import Any

from real_openrlhf.rewards.verifier import formula, shape

# The parser learns its grammar as it goes, which takes a second.
_FIRST_FORMULA = (
    r"\lfloor\frac{2n-1}{5}\rfloor+x_{1}\cdot\log_{2}(n)!+3\sqrt{x}-m_{p}c^{2}\cos(\omega t-\frac{\pi}{4})=0"
)


def main() -> None:
    """Requests from standard input, replies to standard output."""
    _die_with_parent()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    formula.formula(_FIRST_FORMULA)
    gc.freeze()  # the libraries' objects live as long as the worker: no collection needs to look at them
    size = int(sys.argv[1]) << 20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faults = json.loads(os.environ.get("REAL_VERIFIER_FAULTS", "{}"))
    replies.write('{"ready": true}\n')
    for line in sys.stdin:
        replies.write(json.dumps(_answer(json.loads(line), faults)) + "\n")


def _answer(request: dict, faults: dict[str, str]) -> dict:
    unparsed = None
    try:
        _injected_fault(request, faults)
        for gold in request["golds"]:
            try:
                if _GRADERS[request["grader"]](gold, request["answer"]):
                    return {"equal": True}
            except formula.GoldUnparsed as error:
                unparsed = str(error)
    except MemoryError:
        return {"failed": "out_of_memory"}
    except Exception as error:
        return {"failed": "worker_error", "detail": f"{type(error).__name__}: {error}"[:200]}
    return {"equal": False} if unparsed is None else {"failed": "gold_unparsed", "detail": unparsed[:200]}


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
    # As in a Ray actor, where it sets no alarm: its alarm of 120 s would end the worker.
    module.threading = SimpleNamespace(current_thread=lambda: "a thread", main_thread=lambda: "another")
    return module


_GRADERS: dict[str, Callable[[str, str], bool]] = {
    "robust": partial(shape.same, leaf_equal=formula.same),
    "disco": disco,
}


def _die_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, which then closes the pipe
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)


def _injected_fault(request: dict, faults: dict[str, str]) -> None:
    text = "".join([*request["golds"], request["answer"]])
    fault = next((fault for fault, marker in faults.items() if marker in text), None)
    if fault == "exit":
        os._exit(1)
    if fault == "hang":
        while True:
            pass
    if fault == "oom":
        hoard = []  # untouched pages: the limit is on address space
        while True:
            hoard.append(bytes(64 << 20))
    if fault:
        raise ValueError(f"REAL_VERIFIER_FAULTS names {fault!r}: expected hang, oom or exit")


if __name__ == "__main__":
    main()
