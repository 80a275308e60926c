"""The graders by name: our verifier, the rules of the paper's baselines, and math-verify.

`reward_function` makes a reward file's scores of their verdicts: 1 for correct, 0 for incorrect, nan for ungraded.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, cast

from real_openrlhf.rewards import variables
from real_openrlhf.rewards.calls import NO_ANSWER
from same_answer import extract, verdict
from same_answer.extract import Think, golds_of
from same_answer.pool import ALGEBRA
from same_answer.process import NoVerdict
from same_answer.verdict import FAILED, Verdict

_OTHERS = "real_openrlhf.rewards.other_graders"  # the program of their workers
_LONGEST_BOX, _LONGEST_END = 4_000, 10_000
_PROMPT_END = 64  # characters: enough to find the end of a prompt that the tokenizer changed


class Asked(NamedTuple):
    """One response with its label, and the prompt where it is known."""

    response: str
    label: object
    prompt: str = ""


def judge(item: Asked, think: Think = "optional", grader: str = "robust", allowed: tuple[str, ...] = ()) -> Verdict:
    """A grader's verdict on one response. Like `verify` it never raises; `allowed` are conventions of the verifier."""
    if grader == "robust":
        return verdict.verify(item.response, item.label, think=think, prompt=item.prompt, allowed=allowed)
    rules = _JUDGES[grader]
    return verdict.answered(lambda: rules(item.response, item.label, think), item.response, item.label)


def judge_many(
    items: Iterable[Asked],
    think: Think = "optional",
    grader: str = "robust",
    allowed: tuple[str, ...] = (),
    threads: int = 2,
) -> Iterator[Verdict]:
    """Verdicts in order, as they come."""
    executor = ThreadPoolExecutor(threads)
    try:
        yield from executor.map(lambda item: judge(item, think, grader, allowed), items)
    finally:
        executor.shutdown(cancel_futures=True)  # Ctrl-C does not wait for the rest


def _disco(response: str, label: object, think: Think) -> Verdict:
    """DisCO's verdict, on the text between the first `</think>` and the next, from the last box on."""
    golds = _golds(label)
    parts = response.split("</think>", 2)
    if len(parts) == 1 and (think == "required" or "<think>" in response):
        return Verdict(0.0, "unfinished_thinking")
    text = parts[min(1, len(parts) - 1)]
    start = text.rfind("\\boxed")
    return _ask("disco", golds, text[start : start + _LONGEST_BOX]) if start >= 0 else Verdict(0.0, "no_answer")


def _math_verify(response: str, label: object, think: Think) -> Verdict:
    """math-verify's verdict; it also reads the text around a box, and an answer without a box."""
    golds = _golds(label)
    text = extract.after_thinking(response, think)
    return Verdict(0.0, "unfinished_thinking") if text is None else _ask("math_verify", golds, text[-_LONGEST_END:])


_JUDGES = {"disco": _disco, "math_verify": _math_verify}


def _golds(label: object) -> tuple[str, ...]:
    if golds := golds_of(label):
        return golds
    raise NoVerdict("no_gold")


def _ask(grader: str, golds: tuple[str, ...], answer: str) -> Verdict:
    equal = verdict.ask(grader, golds, answer, _OTHERS)
    return Verdict(1.0, "exact") if equal else Verdict(0.0, "different")


def reward_function(grader: str) -> Callable[[list[str], list[str], list[str]], dict]:
    """Make a `reward_func`; OpenRLHF calls it per response, in a thread of a rollout actor. Starts its workers."""
    if wrong := next(variables.variable_problems(), None):
        raise ValueError(wrong)
    think = os.environ.get("REAL_THINK", "auto")
    allowed = tuple(filter(None, os.environ.get("REAL_ALLOW", "").split(",")))
    if grader not in variables.GRADERS:
        raise ValueError(f"there is no grader {grader}: {', '.join(variables.GRADERS)}")
    # its workers begin to start: the first hard answer does not wait for them
    verdict.pool(_OTHERS if grader in _JUDGES else ALGEBRA)

    def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict:
        (query,), (prompt,), (label,) = queries, prompts, labels
        return _reward(_verdict(query, prompt, label, grader, think, allowed))

    return reward_func


def _reward(judged: Verdict) -> dict:
    no_answer = float(judged.reason in ("no_answer", "unfinished_thinking"))
    logs = {"verifier/no_answer": no_answer, NO_ANSWER: no_answer}
    logs["verifier/by_algebra"] = float(judged.reason == "algebra")
    logs |= {f"verifier/{reason}": float(judged.reason == reason) for reason in ("copied", "unevaluated")}
    logs["verifier/plain_text"] = float(judged.reason == "unread")
    logs |= {f"verifier/ignored_{reason}": float(judged.reason == reason) for reason in (*FAILED, "prompt_not_found")}
    return {"rewards": 0.0 if judged.ungraded else judged.score, "scores": judged.score, "extra_logs": logs}


def _verdict(query: str, prompt: str, label: str, grader: str, think: str, allowed: tuple[str, ...]) -> Verdict:
    response = query.removeprefix(prompt)  # which may itself contain `\boxed{}`
    if not query.startswith(prompt):
        _, end, response = query.partition(prompt[-_PROMPT_END:])
        if not (end and prompt):
            return Verdict(math.nan, "prompt_not_found")
    return judge(Asked(response, label, prompt), thinking(prompt, think), grader, allowed)


def thinking(prompt: str, think: str) -> Think:
    """`auto` requires what the prompt opens."""
    if think == "auto":
        think = "required" if prompt.rstrip().endswith((*extract.THINKING,)) else "optional"
    return cast(Think, think)
