"""A process that decides whether answers are right, for one client: requests and replies are JSON lines on its pipes.

It may be killed at any moment. It bounds its own memory and the CPU time of a request, and dies with the process that
started it.
"""

import ctypes
import gc
import json
import logging
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable

Graders = dict[str, Callable[[str, str], bool]]  # name -> (gold, answer) -> is it right?


class NoVerdict(Exception):
    """A grader cannot tell whether an answer is right; `reason` is a short name for counting."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason, self.detail = reason, detail


def serve(graders: Graders, prepare: Callable[[], object]) -> None:
    """Answer requests from standard input on standard output, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, which then closes the pipe
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the client
        if os.getppid() != int(sys.argv[2]):
            os._exit(1)
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    prepare()
    gc.freeze()  # the libraries' objects live as long as the worker: no collection needs to look at them
    size, most = int(sys.argv[1]) << 20, resource.getrlimit(resource.RLIMIT_AS)[1]
    size = size if most == resource.RLIM_INFINITY else min(size, most)  # a batch system may allow less
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies.write('{"ready": true}\n')
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])  # of CPU time; its signal ends this process
        reply = _answer(graders, request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        replies.write(json.dumps(reply) + "\n")


def _answer(graders: Graders, request: dict) -> dict:
    undecided = None
    try:
        for gold in request["golds"]:
            try:
                if graders[request["grader"]](gold, request["answer"]):
                    return {"equal": True}
            except NoVerdict as error:
                undecided = {"failed": error.reason, "detail": error.detail[:200], "whole": True}
    except MemoryError:
        return {"failed": "out_of_memory"}
    except Exception as error:
        return {"failed": "worker_error", "detail": f"{type(error).__name__}: {error}"[:200]}
    return undecided or {"equal": False}
