"""Whether the reward functions of this package can grade a label: its own answer must get a verdict."""

from collections.abc import Sequence
from pathlib import Path

from real_openrlhf.rewards import gym_tasks
from real_openrlhf.verifier.extract import json_texts
from real_openrlhf.verifier.verdict import verify

OURS = Path(gym_tasks.__file__).parent


def without_verdict(reward: Path, labels: Sequence[str]) -> list[str]:
    """For each label that the reward file cannot grade a line with its defect; nothing for files of others."""
    if reward.parent.resolve() != OURS.resolve():
        return []
    grade = _gym if reward.name == "gym_reward.py" else _mathematics
    return [wrong for label in labels if (wrong := grade(label))]


def _gym(label: str) -> str:
    try:
        gym_tasks.entry(label)
    except (ValueError, TypeError, LookupError):
        return f"the label {label[:60]!r} is no task of `real-openrlhf data gym`"
    return ""


def _mathematics(label: str) -> str:
    answer = (json_texts(label) or [label])[0]
    verdict = verify(f"\\boxed{{{answer}}}", label, think="optional")
    return f"the label {label[:60]!r}: {verdict.reason}" if verdict.ignored else ""
