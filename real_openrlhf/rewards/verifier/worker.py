"""The process that does algebra for one client: requests and replies are JSON lines on its pipes.

It may be killed at any moment. It bounds its own memory, gives up by itself before the client's deadline, and dies
with the process that started it. REAL_VERIFIER_FAULTS, a JSON object of faults (hang, oom, exit, corrupt) and their
markers, makes it fail on purpose when a marker is in a gold or an answer: the paths for failures are tested for real.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

_FIRST_FORMULAS = (
    r"\frac{1}{2}x^{2}+3\sqrt{x}-1",
    r"f(x)=\sin(2x)e^{-ax}",
    r"x_{1}\cdot\log_{2}(n)+\ln k",
    r"\frac{\pi(a+b)!}{c^{2}}-2i",
    r"\lfloor\frac{2n-1}{5}\rfloor",
    r"I(0)e^{-\frac{t}{RC}}",
    r"m_{p}c^{2}\cos(\omega t-\frac{\pi}{4})",
    r"2x+3y-1=0",
    r"\sum_{n=1}^{\infty}\frac{1}{n^{2}}",
)
_KNOWN = (
    (r"\sqrt{8}", r"2\sqrt{2}", True),
    (r"\sqrt{8}", r"3\sqrt{2}", False),
    (r"\frac{\pi^{2}}{6}", r"\sum_{n=1}^{\infty}\frac{1}{n^{2}}", True),
)
SOFT_DEADLINE_SHARE = 0.7  # of the client's deadline: giving up is cheaper than being killed
CHECK_SHARE = 0.2  # for the look at itself after giving up


class OutOfTime(BaseException):
    """Passes every `except Exception` between the signal and the request loop."""


def serve(deadline: float, memory: int, faults: dict[str, str]) -> None:
    """Requests from standard input, replies to standard output, in a process that has imported the libraries."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    die_with_parent()
    _limit_memory(memory)
    signal.signal(signal.SIGALRM, _out_of_time)
    replies.write('{"ready": true}\n')
    for line in sys.stdin:
        reply = _answer(json.loads(line), deadline * SOFT_DEADLINE_SHARE, faults)
        if reply.get("failed") not in (None, "gold_unparsed"):
            reply["last"] = reply["failed"] == "out_of_memory" or not _sound(deadline * CHECK_SHARE)
        replies.write(json.dumps(reply) + "\n")
        if reply.get("last"):
            return


def _answer(request: dict, seconds: float, faults: dict[str, str]) -> dict:
    try:
        # Again and again: a bare `except:` on the way may swallow one.
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
        try:
            _injected_fault(request, faults)
            return _any_equal(_GRADERS[request["grader"]], request["golds"], request["answer"])
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except OutOfTime:
        return {"failed": "timeout"}
    except MemoryError:
        return {"failed": "out_of_memory"}
    except Exception as error:
        return {"failed": "worker_error", "detail": f"{type(error).__name__}: {error}"[:200]}


def _sound(seconds: float) -> bool:
    """Whether known answers still come out right: what was interrupted may have left the libraries half changed."""
    from real_openrlhf.rewards.verifier import formulas

    formulas.formula.cache_clear()
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
        try:
            return _knows()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (OutOfTime, Exception):
        return False


def _knows() -> bool:
    return all(_robust(gold, answer) == expected for gold, answer, expected in _KNOWN)


def _any_equal(grader: Callable[[str, str], bool], golds: list[str], answer: str) -> dict:
    from real_openrlhf.rewards.verifier.algebra import GoldUnparsed

    unparsed = None
    for gold in golds:
        try:
            if grader(gold, answer):
                return {"equal": True}
        except GoldUnparsed as error:
            unparsed = str(error)
    return {"equal": False} if unparsed is None else {"failed": "gold_unparsed", "detail": unparsed[:200]}


def _robust(gold: str, answer: str) -> bool:
    from real_openrlhf.rewards.verifier import algebra, comparison

    return comparison.same(gold, answer, algebra.ALGEBRA)


def _disco(gold: str, answer: str) -> bool:
    from real_openrlhf.rewards.verifier import disco_rules

    return disco_rules.same(gold, answer)


_GRADERS = {"robust": _robust, "disco": _disco}


def import_libraries() -> None:
    """Before the first worker: imports and first parses take two seconds."""
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    from real_openrlhf.rewards.verifier import algebra, formulas  # noqa: F401

    for text in _FIRST_FORMULAS:  # the parser learns its grammar as it goes
        formulas.formula(text)
    assert _knows()
    formulas.formula.cache_clear()


def _limit_memory(megabytes: int) -> None:
    import resource

    size = megabytes << 20
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def die_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client, which then closes the pipe
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _out_of_time(signum: int, frame: FrameType | None) -> None:
    raise OutOfTime


def _injected_fault(request: dict, faults: dict[str, str]) -> None:
    text = "".join([*request["golds"], request["answer"]])
    fault = next((fault for fault, marker in faults.items() if marker in text), None)
    if fault == "exit":
        os._exit(1)
    if fault == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        while True:
            pass
    if fault == "oom":
        hoard = []  # untouched pages: the limit is on address space
        while True:
            hoard.append(bytes(64 << 20))
    if fault == "corrupt":
        from real_openrlhf.rewards.verifier import formulas

        vars(formulas)["_plain"] = None  # as a worker that memory ran out in
        raise OutOfTime
    if fault:
        raise ValueError(f"REAL_VERIFIER_FAULTS names {fault!r}: expected hang, oom, exit or corrupt")
