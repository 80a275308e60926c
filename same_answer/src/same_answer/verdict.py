"""Decide whether the answer of a response equals the gold: cheapest checks first, a reason for each verdict."""

import contextlib
import logging
import math
import os
import re
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from typing import NamedTuple, get_args

from same_answer import compare, conventions, extract
from same_answer.arithmetic import NeedsDigits, is_number
from same_answer.extract import Think, golds_of
from same_answer.pool import ALGEBRA, WorkerPool, settings
from same_answer.process import NoVerdict
from same_answer.reading.answer_parser import parse_answer
from same_answer.reading.budget import Exhausted
from same_answer.reading.tex import FUNCTIONS, clean, tokens, untokenize

logger = logging.getLogger("same_answer")

# No verdict: the response is ungraded, and left out in training.
FAILED = ("no_gold", "gold_unparsed", "timeout", "out_of_memory", "worker_died", "worker_unavailable", "worker_error",
          "verifier_error")  # fmt: skip
_LOGGED = 3  # failures of a reason before they are counted alone
_MAX_LENGTH = 1_000
_MAX_NESTING = 24
_DEEPEST_CALLER = 300  # frames; Python allows 1,000, and what is read and compared here needs the others
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}(?![a-zA-Z])")
_NAME = re.compile(r"(?:[A-Z][a-z']+)(?:[ -](?:[A-Z][a-z']+|of|the|and|de|in|on)){2,5}")  # The Lord of the Rings
_TEXT = re.compile(r"\\text\{[^{}]*\}")
_BRACKET = re.compile(r"\\.|[{}()\[\]]", re.DOTALL)


class Verdict(NamedTuple):
    """`score` is 1.0 (correct), 0.0 (incorrect) or nan (ungraded: leave the response out); `reason` says why.

    Only a correct one is true.
    """

    score: float
    reason: str

    def __bool__(self) -> bool:
        return self.correct

    @property
    def correct(self) -> bool:
        return self.score == 1.0

    @property
    def ungraded(self) -> bool:
        return math.isnan(self.score)

    @property
    def ignored(self) -> bool:
        """The name of `ungraded` in 0.1."""
        return self.ungraded


def verify(
    response: str,
    gold: object = None,
    *,
    think: Think = "optional",
    prompt: str = "",
    allowed: tuple[str, ...] = (),
    label: object = None,
) -> Verdict:
    """The verdict on one response: no text raises, and it returns in bounded time. Safe in any thread.

    `gold` is one or several (a list, an array, or a JSON list of texts), any of which counts. `think` says whether a
    response must finish its thinking with `</think>`; where it is optional, thinking that was begun must be finished.
    With the prompt, answers that copy it or leave its operation undone are wrong, but for the `allowed` conventions.
    `label` is the gold's name in 0.1. A setting that cannot be raises ValueError.
    """
    if think not in get_args(Think) or not {*allowed} <= {*conventions.CONVENTIONS}:
        names = " and ".join(map(repr, conventions.CONVENTIONS))
        raise ValueError(
            f"think {think!r}, allowed {allowed!r}: think is 'required' or 'optional', allowed of {names}"
        )
    settings()
    gold = label if gold is None else gold
    return answered(lambda: _on_any_stack(lambda: _verdict(response, gold, think, prompt, allowed)), response, gold)


def equal(answer: str, gold: object, *, prompt: str = "", allowed: tuple[str, ...] = ()) -> Verdict:
    """The verdict on an answer that stands in no box."""
    settings()
    return answered(lambda: _on_any_stack(lambda: _graded(answer.strip(), gold, prompt, allowed)), answer, gold)


def answered(judge: Callable[[], Verdict], response: str, label: object) -> Verdict:
    """What `judge` returns; no verdict where it fails, and a line in the log."""
    try:
        return judge()
    except Exception as error:
        why, reason = traceback.format_exc(), "verifier_error"
        if isinstance(error, NoVerdict):
            why, reason = str(error), error.reason
        _log_failure(reason, why, response, label)
        return Verdict(math.nan, reason)


def _log_failure(reason: str, why: str, response: str, label: object) -> None:
    """The first few of a reason are logged, then the 10th, 100th and so on, with its number."""
    with _failures_lock:
        _failures[reason] += 1
        count = _failures[reason]
    if count <= _LOGGED or str(count).rstrip("0") == "1":
        # all texts may come from a model, so control characters and surrogates are escaped
        logger.warning("ungraded, no. %d of %s (%r): gold %.200r, response ends %.200r",
                       count, reason, why, label, str(response)[-200:])  # fmt: skip


def _on_any_stack(judge: Callable[[], Verdict]) -> Verdict:
    """What `judge` returns wherever it is called from: a caller deep in its stack gets a fresh one, in a thread."""
    if not _is_deep():
        with contextlib.suppress(RecursionError):
            return judge()
    done: Future[Verdict] = Future()

    def run() -> None:
        try:
            done.set_result(judge())
        except RecursionError:
            done.set_result(Verdict(0.0, "too_deep"))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="verifier-stack", daemon=True).start()
    return done.result()


def _is_deep() -> bool:
    try:
        return bool(sys._getframe(_DEEPEST_CALLER))
    except ValueError:  # there are fewer frames
        return False


def _verdict(response: str, gold: object, think: Think, prompt: str, allowed: tuple[str, ...]) -> Verdict:
    if not golds_of(gold):
        raise NoVerdict("no_gold")
    text = extract.after_thinking(response, think)
    if text is None:
        return Verdict(0.0, "unfinished_thinking")
    answer = extract.boxed_answer(text)
    if answer is None:
        _warn_of_swapped(response, gold)
        return Verdict(0.0, "no_answer")
    return _graded(answer, gold, prompt, allowed)


def _warn_of_swapped(response: str, gold: object) -> None:
    global _warned
    if not _warned and isinstance(gold, str) and len(response) < len(gold) and extract.boxed_answer(gold):
        _warned = True
        logger.warning("the gold %.200r has a box, the response %.200r has none: it is verify(response, gold)",
                       gold, response)  # fmt: skip


def _graded(answer: str, gold: object, prompt: str, allowed: tuple[str, ...]) -> Verdict:
    golds = golds_of(gold)
    if not golds:
        raise NoVerdict("no_gold")
    if answer in golds:
        return Verdict(1.0, "exact")
    normal = tuple(dict.fromkeys(filter(None, map(_normal_gold, golds))))
    if len(answer) > _MAX_LENGTH:
        verdict = Verdict(0.0, "too_long")
    else:
        verdict = Verdict(0.0, "too_deep") if too_deep(answer) else _compared(normal, clean(answer))
    if verdict.score == 0.0 and not all(map(_normal_gold, golds)):
        raise NoVerdict("gold_unparsed", "too long, nested too deep, or a solution before its ####")
    if verdict.score == 1.0:
        broken = [conventions.broken(gold, answer, prompt, allowed, _equal) for gold in golds]
        return Verdict(0.0, max(broken)) if all(broken) else verdict
    if verdict.reason == "different" and any(compare.unread(gold, answer) for gold in golds):
        return Verdict(0.0, "unread")
    return verdict


def _equal(one: str, other: str) -> bool:
    """Whether two texts have one value, as far as that can be told."""
    try:
        return _compared((one,), other).score == 1.0
    except NoVerdict:
        return False


def _compared(golds: tuple[str, ...], answer: str) -> Verdict:
    undecided, unreadable, large = [], False, False
    for gold in golds:
        try:
            prose = _prose(gold)
            if answer == gold or (_unfonted(answer) == _unfonted(gold) if prose else compare.same(gold, answer)):
                return Verdict(1.0, "exact")
            unreadable |= prose
        except NeedsDigits:
            undecided.append(gold)
        except Exhausted:
            unreadable = True
        except NoVerdict as failure:
            large |= failure.reason == "too_large"
            unreadable |= failure.reason != "too_large"
    verdict = Verdict(0.0, "too_large" if large else "different")
    if undecided:
        verdict = _worked_out(tuple(undecided), answer)
    if unreadable and verdict.score == 0.0:
        raise NoVerdict("gold_unparsed", "a gold cannot be read, and the answer is not the same text")
    return verdict


@lru_cache(maxsize=4096)
def _worked_out(golds: tuple[str, ...], answer: str) -> Verdict:
    """The workers' verdict. An answer that exhausts a worker is wrong if the golds alone do not."""
    try:
        return Verdict(1.0, "algebra") if ask("robust", golds, answer, ALGEBRA) else Verdict(0.0, "different")
    except NoVerdict as failure:
        exhausted = failure.reason in ("timeout", "out_of_memory") and all(map(_is_workable, golds))
        if exhausted or failure.reason == "too_large":
            return Verdict(0.0, "too_large")
        raise


@lru_cache(maxsize=4096)
def _is_workable(gold: str) -> bool:
    """Whether a worker compares a gold with itself in half of the time that an answer has."""
    workers = pool()
    request = {"grader": "alone", "golds": (gold,), "answer": "", "seconds": workers.limits.deadline / 2}
    return is_number(parse_answer(gold)) or workers.ask(request)["equal"]


def too_deep(answer: str) -> bool:
    """Whether brackets nest too deep. Callers ask this before parsing, because the parsers recurse into brackets."""
    depth = 0
    for bracket in _BRACKET.finditer(answer):
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(bracket[0], 0)
        if depth > _MAX_NESTING:
            return True
    return False


def _prose(gold: str) -> bool:
    """Whether a gold is prose with formulas in it; only the same text can be recognised as equal. A name is none."""
    words = [word for word in _WORD.findall(_TEXT.sub(" ", gold)) if word not in FUNCTIONS]
    if len(words) < 3 or _NAME.fullmatch(gold):
        return False
    return not gold[:1].isdigit() or compare.has_words(parse_answer(gold))  # 5 cubic feet per minute


def _unfonted(text: str) -> str:
    return untokenize(tokens(text)).replace(" ", "")


@lru_cache(maxsize=4096)
def _normal_gold(gold: str) -> str:
    """The gold in one spelling; an empty text if it is too long, nested too deep or a whole solution of GSM8K."""
    return "" if len(gold) > _MAX_LENGTH or "####" in gold or too_deep(gold) else clean(gold)


@lru_cache(maxsize=4096)
def ask(grader: str, golds: tuple[str, ...], answer: str, program: str) -> bool:
    """A worker's verdict, cached because rollouts of a prompt often have one answer. Failures raise, uncached."""
    return pool(program).ask({"grader": grader, "golds": golds, "answer": answer})["equal"]


def pool(program: str = ALGEBRA) -> WorkerPool:
    """The workers that run this program. The first call begins to start them and returns at once."""
    with _pool_lock:
        if program not in _workers:
            _workers[program] = WorkerPool(*settings(), program)
        return _workers[program]


def _forget_workers() -> None:
    """Drop the workers in a forked child, which must not share its parent's pipes."""
    global _workers, _pool_lock, _failures_lock
    _workers, _pool_lock, _failures_lock = {}, threading.Lock(), threading.Lock()


_failures, _failures_lock = Counter[str](), threading.Lock()  # by reason
_warned = False  # of arguments in the other order
_workers: dict[str, WorkerPool] = {}
_pool_lock = threading.Lock()
os.register_at_fork(after_in_child=_forget_workers)
