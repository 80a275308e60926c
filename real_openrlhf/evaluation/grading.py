"""Verdicts on samples: by the maths verifier, or by a reward file as OpenRLHF's `--reward.remote_url` takes."""

import importlib.util
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast, get_args

from tqdm import tqdm

from real_openrlhf.base.errors import UserError
from real_openrlhf.evaluation.store import Sample
from real_openrlhf.evaluation.tasks import Task
from real_openrlhf.rewards.gym_tasks import require as require_gym
from real_openrlhf.rewards.verifier.verdict import Grader, Think, verify_many

VERIFIERS = get_args(Grader)

Grade = Callable[[list[tuple[Task, Sample]]], Iterator[tuple[float, str]]]
Graded = tuple[Sample, float, str]  # the score is 1, 0, or nan where the verifier could not tell; then the reason


def find_grader(name: str, think: Think) -> Grade:
    if name == "gym":
        require_gym()
    if name in VERIFIERS:
        grader = cast(Grader, name)
        return lambda pairs: verify_many(((one.response, task.label) for task, one in pairs), think, grader)
    reward = _reward_function(Path(name))
    return lambda pairs: (_rewarded(task, sample, reward) for task, sample in pairs)


def grade(tasks: list[Task], k: int, samples: dict[tuple[str, int], Sample], grader: Grade) -> list[dict]:
    """The lines of per_problem.jsonl: one a problem, with the verdicts on its k samples."""
    pairs = [(task, samples[task.identity, number]) for task in tasks for number in range(k)]
    verdicts = tqdm(grader(pairs), "grading", len(pairs), unit="sample")
    graded: list[Graded] = [(sample, *verdict) for (_, sample), verdict in zip(pairs, verdicts, strict=True)]
    return [per_problem(task, graded[number * k : (number + 1) * k]) for number, task in enumerate(tasks)]


def per_problem(task: Task, graded: list[Graded]) -> dict:
    """One line of per_problem.jsonl; a sample that could not be graded counts as wrong."""
    verdicts = [int(score == 1.0) for _, score, _ in graded]
    return {
        "benchmark": task.benchmark,
        "id": task.identity,
        "label": task.label,
        "pass@1": sum(verdicts) / len(verdicts),
        "verdicts": verdicts,
        "reasons": [reason for _, _, reason in graded],
        "ungraded": sum(math.isnan(score) for _, score, _ in graded),
        "tokens": [sample.tokens for sample, _, _ in graded],
        "truncated": [sample.truncated for sample, _, _ in graded],
    }


def _rewarded(task: Task, sample: Sample, reward: Callable) -> tuple[float, str]:
    """The reward contract: one query, 0 or 1; a score of nan says that there is no verdict."""
    score = float(reward([task.prompt + sample.response], [task.prompt], [task.label])["scores"])
    if not (math.isnan(score) or score in (0.0, 1.0)):
        raise UserError(f"the reward file gave {score}, and pass@1 needs 0 or 1. Return these, or nan for no verdict")
    return score, "reward"


def _reward_function(path: Path) -> Callable:
    if path.suffix != ".py" or not path.is_file():
        raise UserError(f"unknown grader {path}. There are: {', '.join(VERIFIERS)}, or a Python file with reward_func")
    specification = importlib.util.spec_from_file_location("reward", path)
    assert specification and specification.loader  # as for every .py file
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    if not hasattr(module, "reward_func"):
        raise UserError(f"{path} has no reward_func. Define `def reward_func(queries, prompts, labels)` in it")
    return module.reward_func
