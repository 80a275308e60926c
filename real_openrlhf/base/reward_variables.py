"""Environment variables of the reward files here: they change verdicts, so every process that grades needs them."""

import json
import os
from collections.abc import Mapping

# With their defaults: a run that goes on under another one would be two experiments.
GRADERS = {"REAL_ALLOW": "", "REAL_GRADER": "robust", "REAL_THINK": "auto"}
LIMITS = ("REAL_REWARD_SECONDS", "REAL_VERIFIER_DEADLINE", "REAL_VERIFIER_MEMORY_MB", "REAL_VERIFIER_WORKERS")
NAMES = (*GRADERS, *LIMITS)
JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # the settings of a Ray job, in the environment of its command


def reward_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Those that are set here. Actors on a cluster that others started have the environment of its nodes otherwise.

    Ray refuses a variable that the job's settings name too, and passes on those itself.
    """
    job = json.loads(environment.get(JOB, "{}"))
    passed_on = (job.get("runtime_env") or {}).get("env_vars") or {}
    return {name: environment[name] for name in NAMES if name in environment and name not in passed_on}
