"""The file for OpenRLHF's `--reward.remote_url`: 1 for a right answer, 0 for a wrong one, nan for no verdict.

OpenRLHF loads this file by its path in every rollout actor, so it only imports from the installed package.
Options are environment variables, because OpenRLHF passes no others:

REAL_THINK               required, optional, or auto (default): required where the prompt ends with an open <think>
REAL_GRADER              robust (default), or disco: the rules of the paper's baselines
REAL_VERIFIER_WORKERS    algebra processes of each rollout actor (2)
REAL_VERIFIER_DEADLINE   seconds after which one is killed (2.0)
REAL_VERIFIER_MEMORY_MB  address space of each (2048)
"""

import math
import os
from typing import cast

from real_openrlhf.rewards.verifier.verdict import FAILED, Grader, Think, Verdict, start_workers, verify

_THINK = os.environ.get("REAL_THINK", "auto")
_GRADER = os.environ.get("REAL_GRADER", "robust")
if _THINK not in ("auto", "required", "optional") or _GRADER not in ("robust", "disco"):
    raise ValueError(f"REAL_THINK={_THINK} must be auto, required or optional; REAL_GRADER={_GRADER} robust or disco")
_PROMPT_END = 64  # enough to find where a prompt ends that did not survive the tokenizer unchanged

start_workers()


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict:
    """OpenRLHF calls this for one response at a time, in a thread of its rollout actor."""
    (query,), (prompt,), (label,) = queries, prompts, labels
    verdict = _verdict(query, prompt, label)
    no_answer = float(verdict.reason in ("no_answer", "unfinished_thinking"))
    return {
        "rewards": 0.0 if verdict.ignored else verdict.score,
        "scores": verdict.score,
        "extra_logs": {
            "verifier/no_answer": no_answer,
            "label/no_answer": no_answer,  # TRPA's lowest level: the trainer takes it out of the log
            "verifier/by_algebra": float(verdict.reason == "algebra"),
        }
        | {f"verifier/ignored_{reason}": float(verdict.reason == reason) for reason in (*FAILED, "prompt_not_found")},
    }


def _verdict(query: str, prompt: str, label: str) -> Verdict:
    response = _response(query, prompt)
    if response is None:
        return Verdict(math.nan, "prompt_not_found")
    return verify(response, label, _think(prompt), cast(Grader, _GRADER))


def _think(prompt: str) -> Think:
    if _THINK == "auto":
        return "required" if prompt.rstrip().endswith("<think>") else "optional"
    return cast(Think, _THINK)


def _response(query: str, prompt: str) -> str | None:
    r"""The text after the prompt, which may itself contain `\boxed{}`; None if the query lacks the prompt."""
    if query.startswith(prompt):
        return query[len(prompt) :]
    _, found, response = query.partition(prompt[-_PROMPT_END:])
    return response if found and prompt else None
