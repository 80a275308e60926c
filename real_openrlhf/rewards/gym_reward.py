"""The file for OpenRLHF's `--reward.remote_url` with data of `real-openrlhf data gym`; scores as math_reward.py's.

Options are environment variables, because OpenRLHF passes no others:

REAL_THINK               required, optional, or auto (default): required where the prompt ends with an open <think>
REAL_VERIFIER_WORKERS    processes of each rollout actor that run scorers (2)
REAL_VERIFIER_DEADLINE   seconds after which one is killed (2.0)
REAL_VERIFIER_MEMORY_MB  address space of each (2048)
"""

import os

from real_openrlhf.rewards.graded import reward
from real_openrlhf.rewards.gym import tasks
from real_openrlhf.rewards.verifier.verdict import start_workers

_THINK = os.environ.get("REAL_THINK", "auto")
if _THINK not in ("auto", "required", "optional"):
    raise ValueError(f"REAL_THINK={_THINK} must be auto, required or optional")

tasks.require()
start_workers("gym")


def reward_func(queries: list[str], prompts: list[str], labels: list[str]) -> dict:
    """OpenRLHF calls this for one response at a time, in a thread of its rollout actor."""
    (query,), (prompt,), (label,) = queries, prompts, labels
    return reward(query, prompt, label, "gym", _THINK)
