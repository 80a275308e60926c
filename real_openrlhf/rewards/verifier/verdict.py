"""Decide whether the answer of a response equals the gold: cheapest checks first, a reason for each verdict."""

import json
import logging
import math
import os
import threading
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Literal, NamedTuple

from real_openrlhf.rewards import gym_tasks
from real_openrlhf.rewards.verifier import compare, extract, guard
from real_openrlhf.rewards.verifier.arithmetic import Undecided
from real_openrlhf.rewards.verifier.extract import Think, golds_of
from real_openrlhf.rewards.verifier.pool import ALGEBRA, GYM, Limits, NoVerdict, WorkerPool
from real_openrlhf.rewards.verifier.reading.tex import clean

logger = logging.getLogger("real_openrlhf.verifier")

Grader = Literal["robust", "disco", "math_verify", "gym"]

RIGHT = ("exact", "algebra")
WRONG = ("no_answer", "unfinished_thinking", "too_long", "too_deep", "too_large", "different")
# No verdict: the label is "ignored" in training.
FAILED = ("no_gold", "gold_unparsed", "timeout", "out_of_memory", "worker_died", "worker_unavailable", "worker_error",
          "verifier_error")  # fmt: skip
FAILED_GYM = (*FAILED, gym_tasks.ScorerRaised.reason)
_LONGEST_BOX, _LONGEST_END = 4_000, 10_000


class Verdict(NamedTuple):
    """`score` is 1.0 (right), 0.0 (wrong) or nan (no verdict: ignore the response); `reason` says why."""

    score: float
    reason: str

    @property
    def ignored(self) -> bool:
        return math.isnan(self.score)


def verify(response: str, label: object, think: Think = "optional", grader: Grader = "robust") -> Verdict:
    """The verdict on one response; never raises and always returns in bounded time. Safe in any thread.

    `label` is a gold or several (a list, or a JSON list of texts), any of which counts. `think` says whether a
    response must finish its thinking with `</think>`; where it is optional, thinking that was begun must be finished.
    """
    try:
        return _VERDICTS[grader](response, label, think)
    except NoVerdict as failure:
        _say("no verdict", str(failure), label, response)
        return Verdict(math.nan, failure.reason)
    except Exception:
        _say("no verdict, a fault of the verifier", traceback.format_exc(), label, response)
        return Verdict(math.nan, "verifier_error")


def _say(what: str, why: str, label: object, response: str) -> None:
    """Log a failure; all texts may come from a model, so control characters and surrogates are escaped."""
    logger.warning("%s (%r): label %.200r, response ends %.200r", what, why, label, str(response)[-200:])


def verify_many(
    items: Iterable[tuple[str, object]], think: Think = "optional", grader: Grader = "robust", threads: int = 2
) -> Iterator[Verdict]:
    """Verdicts on (response, label) pairs, in order, as they come."""
    executor = ThreadPoolExecutor(threads)
    try:
        yield from executor.map(lambda item: verify(item[0], item[1], think, grader), items)
    finally:
        executor.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the rest


def start_workers(grader: Grader = "robust") -> None:
    """Begin to start the workers, so that the first hard answer does not wait for them. Returns at once."""
    _pool(grader)


def _verdict(response: str, label: object, think: Think) -> Verdict:
    golds = golds_of(label)
    if not golds:
        raise NoVerdict("no_gold")
    text = extract.after_thinking(response, think)
    if text is None:
        return Verdict(0.0, "unfinished_thinking")
    answer = extract.boxed_answer(text)
    if answer is None:
        return Verdict(0.0, "no_answer")
    if answer in golds:
        return Verdict(1.0, "exact")
    if len(answer) > guard.MAX_LENGTH:
        return Verdict(0.0, "too_long")
    if guard.too_deep(answer):
        return Verdict(0.0, "too_deep")
    answer = clean(answer)
    undecided, unreadable = [], False
    for gold in dict.fromkeys(map(_normal_gold, golds)):
        if answer == gold:
            return Verdict(1.0, "exact")
        if guard.prose(gold):
            unreadable = True
            continue
        try:
            if compare.same(gold, answer):
                return Verdict(1.0, "exact")
        except Undecided:
            undecided.append(gold)
        except compare.Unreadable:
            unreadable = True
    if not undecided:
        verdict = Verdict(0.0, "different")
    elif guard.hostile(answer) and not any(map(guard.hostile, undecided)):
        verdict = Verdict(0.0, "too_large")
    else:
        verdict = _ask("robust", tuple(undecided), answer)
    if unreadable and verdict.score == 0.0:
        raise NoVerdict("gold_unparsed", "a gold cannot be read, and the answer is not the same text")
    return verdict


def _disco_verdict(response: str, label: object, think: Think) -> Verdict:
    """DisCO's verdict, on the text between the first `</think>` and the next, from the last box on."""
    golds = golds_of(label)
    if not golds:
        raise NoVerdict("no_gold")
    parts = response.split("</think>", 2)
    if len(parts) == 1 and (think == "required" or "<think>" in response):
        return Verdict(0.0, "unfinished_thinking")
    text = parts[min(1, len(parts) - 1)]
    start = text.rfind("\\boxed")
    return _ask("disco", golds, text[start : start + _LONGEST_BOX]) if start >= 0 else Verdict(0.0, "no_answer")


def _math_verify_verdict(response: str, label: object, think: Think) -> Verdict:
    """math-verify's verdict; it also reads the text around a box, and an answer without a box."""
    golds = golds_of(label)
    if not golds:
        raise NoVerdict("no_gold")
    text = extract.after_thinking(response, think)
    return Verdict(0.0, "unfinished_thinking") if text is None else _ask("math_verify", golds, text[-_LONGEST_END:])


def _gym_verdict(response: str, label: object, think: Think) -> Verdict:
    """The verdict of reasoning-gym's scorer for the task that the label names."""
    try:
        entry = gym_tasks.entry(label)
    except (ValueError, TypeError, LookupError) as error:
        raise NoVerdict("no_gold", "the label is no entry of reasoning-gym, as `data gym` writes it") from error
    text = extract.after_thinking(response, think)
    if text is None:
        return Verdict(0.0, "unfinished_thinking")
    answer = extract.plain(extract.boxed_answer(text))
    if answer is None:
        return Verdict(0.0, "no_answer")
    if answer == entry["answer"]:
        return Verdict(1.0, "exact")
    if len(answer) > _LONGEST_BOX:
        return Verdict(0.0, "too_long")
    return _ask("gym", (json.dumps(entry),), answer)


_VERDICTS = {"robust": _verdict, "disco": _disco_verdict, "math_verify": _math_verify_verdict, "gym": _gym_verdict}


@lru_cache(maxsize=4096)
def _normal_gold(gold: str) -> str:
    if len(gold) > guard.MAX_LENGTH or guard.too_deep(gold):
        raise NoVerdict("gold_unparsed", "too long or nested too deep")
    return clean(gold)


@lru_cache(maxsize=4096)
def _ask(grader: Grader, golds: tuple[str, ...], answer: str) -> Verdict:
    """A worker's verdict, cached because rollouts of a prompt often have one answer. Failures raise, uncached."""
    equal = _pool(grader).ask({"grader": grader, "golds": golds, "answer": answer})["equal"]
    if grader != "robust":
        return Verdict(1.0, "exact") if equal else Verdict(0.0, "different")
    return Verdict(1.0, "algebra") if equal else Verdict(0.0, "different")


def _pool(grader: Grader = "robust") -> WorkerPool:
    program = GYM if grader == "gym" else ALGEBRA
    with _pool_lock:
        if program not in _workers:
            limits = Limits(
                deadline=float(os.environ.get("REAL_VERIFIER_DEADLINE", Limits.deadline)),
                memory=int(os.environ.get("REAL_VERIFIER_MEMORY_MB", Limits.memory)),
            )
            size = int(os.environ.get("REAL_VERIFIER_WORKERS", "2"))
            _workers[program] = WorkerPool(size, limits, program)
        return _workers[program]


def _forget_workers() -> None:
    """Drop the workers in a forked child, which must not share its parent's pipes."""
    global _workers, _pool_lock
    _workers, _pool_lock = {}, threading.Lock()


_workers: dict[str, WorkerPool] = {}
_pool_lock = threading.Lock()
os.register_at_fork(after_in_child=_forget_workers)
