"""The verifier's worker, made to fail: SAME_ANSWER_FAULTS has the faults (hang, oom, exit), each with its marker.

A worker fails when the marker is in a gold or an answer. So the paths for failures are tested for real. For a fault of
the first start (`exit at first`, `hang at first`) the marker is a file that says there was one.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from same_answer import process, worker

FAULTS = json.loads(os.environ.get("SAME_ANSWER_FAULTS", "{}"))


def failing(grader: str, gold: str, answer: str) -> bool:
    fault = next((fault for fault, marker in FAULTS.items() if marker in gold + answer), "")
    hoard: list[bytes] = []  # untouched pages: the limit is on address space
    while fault:
        if fault == "exit":
            os._exit(1)
        hoard += [bytes(64 << 20)] if fault == "oom" else []
    return worker.GRADERS[grader](gold, answer)


def fail_at_first(fault: str, started: str) -> None:
    try:
        Path(started).touch(exist_ok=False)
    except FileExistsError:
        return
    sys.exit(1) if fault == "exit at first" else time.sleep(1e6)


if __name__ == "__main__":
    for fault, marker in FAULTS.items():
        if fault.endswith("at first"):
            fail_at_first(fault, marker)
    graders = {name: partial(failing, name) for name in worker.GRADERS}
    process.serve(graders, prepare=lambda: graders["robust"](worker.FIRST_FORMULA, "0"))
