"""Environment variables of the reward files here: they change verdicts, so every process that grades needs them."""

import json
import math
import os
from collections.abc import Iterator

from real_openrlhf.base.errors import UserError

# REAL_GRADER and --grader by name; graders.py has how each judges
GRADERS = {
    "robust": "our verifier",
    "disco": "the rules of the paper's baselines",
    "math_verify": "that library's rules",
}
# With their defaults: a run that goes on under another one would be two experiments.
DEFAULTS = {"REAL_ALLOW": "", "REAL_GRADER": "robust", "REAL_THINK": "auto"}
LIMITS = ("REAL_REWARD_SECONDS", "SAME_ANSWER_DEADLINE", "SAME_ANSWER_MEMORY_MB", "SAME_ANSWER_WORKERS")
NAMES = (*DEFAULTS, *LIMITS)
CHOICES = {
    "REAL_GRADER": (*GRADERS,),
    "REAL_THINK": ("auto", "required", "optional"),
    "REAL_ALLOW": ("copied", "unevaluated"),
}
WHOLE = ("SAME_ANSWER_MEMORY_MB", "SAME_ANSWER_WORKERS")
JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # the settings of a Ray job, in the environment of its command


def reward_variables() -> dict[str, str]:
    """Those that are set here. Actors on a cluster that others started have the environment of its nodes otherwise.

    Ray refuses a variable that the job's settings name too, and passes on those itself.
    """
    job = json.loads(os.environ.get(JOB, "{}"))
    passed_on = (job.get("runtime_env") or {}).get("env_vars") or {}
    return {name: os.environ[name] for name in NAMES if name in os.environ and name not in passed_on}


def variable_problems() -> Iterator[str]:
    """Values that no reward function here can read: it would say so when it is loaded, after the model."""
    for name, value in ((name, os.environ[name]) for name in NAMES if name in os.environ):
        if known := CHOICES.get(name):
            words = [word for word in value.split(",") if word] if name == "REAL_ALLOW" else [value]
            if not {*words} <= {*known}:
                yield f"{name}={value} must be {', '.join(known[:-1])} or {known[-1]}. Set one of these, or unset it."
        elif not _is_limit(value, int if name in WHOLE else float):
            kind = "whole number" if name in WHOLE else "number"
            yield f"{name}={value} must be a {kind} above 0. Set one, or unset it."


def refuse_unreadable() -> None:
    """For commands that grade in this process."""
    if wrong := [*variable_problems()]:
        raise UserError(*wrong)


def _is_limit(value: str, kind: type[int] | type[float]) -> bool:
    try:
        return 0 < kind(value) < math.inf
    except ValueError:
        return False
