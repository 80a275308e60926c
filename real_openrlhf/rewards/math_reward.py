"""The file for OpenRLHF's `--reward.remote_url`: 1 for correct, 0 for incorrect, nan for ungraded.

OpenRLHF loads this file by its path in every rollout actor, so it only imports from the installed package.
Options are environment variables, because OpenRLHF passes no others:

REAL_THINK               required, optional, or auto (default): required where the prompt ends with an open <think>
REAL_GRADER              robust (default), or another of rewards/variables.py
REAL_ALLOW               copied,unevaluated or one: such answers count (default: none; same_answer/EQUALITY.md)
SAME_ANSWER_WORKERS      algebra processes of each rollout actor (2)
SAME_ANSWER_DEADLINE     seconds of CPU time after which a process ends (2.0)
SAME_ANSWER_MEMORY_MB    address space of each process (2048)
"""

import os

from real_openrlhf.rewards.graders import reward_function

reward_func = reward_function(os.environ.get("REAL_GRADER", "robust"))
