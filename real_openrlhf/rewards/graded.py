"""Turn verdicts into the scores of a reward file: 1 for right, 0 for wrong, nan for no verdict."""

import math
import os
from collections.abc import Callable
from typing import cast

from real_openrlhf.rewards.graders import FAILED_GYM, Asked, Grader, judge, start_workers
from real_openrlhf.verifier.conventions import CONVENTIONS
from real_openrlhf.verifier.extract import Think
from real_openrlhf.verifier.verdict import FAILED, Verdict

_PROMPT_END = 64  # characters: enough to find the end of a prompt that the tokenizer changed


def reward_function(grader: Grader) -> Callable[[list[str], list[str], list[str]], dict]:
    """Make a `reward_func`; OpenRLHF calls it per response, in a thread of a rollout actor. Starts its workers."""
    think = os.environ.get("REAL_THINK", "auto")
    if think not in ("auto", "required", "optional"):
        raise ValueError(f"REAL_THINK={think} must be auto, required or optional")
    allowed = tuple(filter(None, os.environ.get("REAL_ALLOW", "").split(",")))
    if unknown := {*allowed} - {*CONVENTIONS}:
        raise ValueError(f"REAL_ALLOW names {', '.join(unknown)}; there are {', '.join(CONVENTIONS)}")
    start_workers(grader)

    def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict:
        (query,), (prompt,), (label,) = queries, prompts, labels
        return _reward(_verdict(query, prompt, label, grader, think, allowed), grader)

    return reward_func


def _reward(verdict: Verdict, grader: Grader) -> dict:
    no_answer = float(verdict.reason in ("no_answer", "unfinished_thinking"))
    failed = (*(FAILED_GYM if grader == "gym" else FAILED), "prompt_not_found")
    return {
        "rewards": 0.0 if verdict.ignored else verdict.score,
        "scores": verdict.score,
        "extra_logs": {
            "verifier/no_answer": no_answer,
            "label/no_answer": no_answer,  # TRPA's lowest level: the trainer takes it out of the log
            "verifier/by_algebra": float(verdict.reason == "algebra"),
            "verifier/copied": float(verdict.reason == "copied"),
            "verifier/unevaluated": float(verdict.reason == "unevaluated"),
            "verifier/unread": float(verdict.reason == "unread"),
        }
        | {f"verifier/ignored_{reason}": float(verdict.reason == reason) for reason in failed},
    }


def _verdict(query: str, prompt: str, label: str, grader: Grader, think: str, allowed: tuple[str, ...]) -> Verdict:
    response = _response(query, prompt)
    if response is None:
        return Verdict(math.nan, "prompt_not_found")
    if think == "auto":
        think = "required" if prompt.rstrip().endswith("<think>") else "optional"
    return judge(Asked(response, label, prompt), cast(Think, think), grader, allowed)


def _response(query: str, prompt: str) -> str | None:
    r"""The text after the prompt, which may itself contain `\boxed{}`; None if the query lacks the prompt."""
    if query.startswith(prompt):
        return query[len(prompt) :]
    _, found, response = query.partition(prompt[-_PROMPT_END:])
    return response if found and prompt else None
