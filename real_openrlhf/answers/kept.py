"""rollouts.jsonl read: groups of a step with their weights, and held-out answers. Whoever wrote it, it is data."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base.files import ROLLOUTS, parsed, read_bytes
from real_openrlhf.base.terminal import plain

VERDICTS = {"positive": "right", "negative": "wrong"}
LETTERS = 600  # that are shown of a text


@dataclass(frozen=True)
class Rollout:
    answer: str
    verdict: str  # right, wrong or ignored
    numbers: dict[str, float | None]  # reward, score, weight

    def shown(self, name: str) -> str:
        value = self.numbers[name]
        return "none" if value is None else f"{value:.4g}" if name == "reward" else f"{value:+.4f}"

    @property
    def weight(self) -> float:
        return self.numbers["weight"] or 0.0


@dataclass(frozen=True)
class Group:
    """Of a training step, or of an evaluation, of which one rollout is kept."""

    phase: str  # train | eval
    step: int
    prompt: str
    gold: str
    right: int
    of: int
    rollouts: Sequence[Rollout]

    @property
    def largest(self) -> float:
        return max(abs(rollout.weight) for rollout in self.rollouts) or 1.0

    @property
    def title(self) -> str:
        return f"Step {self.step}: {self.right} of {self.of} right"


def read(folder: Path) -> list[Group]:
    """In the order of writing; a line that is torn, or not ours, is passed over."""
    text = read_bytes(folder / ROLLOUTS) if (folder / ROLLOUTS).exists() else b""
    return [group for line in text.splitlines() if (group := _group(line)) is not None]


def steps(groups: Iterable[Group], phase: str) -> list[int]:
    return sorted({group.step for group in groups if group.phase == phase})


def moments(groups: Sequence[Group]) -> list[int]:
    """The evaluations at the start, in the middle and at the end."""
    known = steps(groups, "eval")
    return sorted({known[0], min(known, key=lambda step: abs(2 * step - known[0] - known[-1])), known[-1]})


def short(text: str) -> str:
    """Beginning and end, with controls spelled out; line ends of any kind are line feeds."""
    half = LETTERS // 2
    text = text if len(text) <= LETTERS else f"{text[:half]} ... {text[-half:]}"
    return plain("\n".join(text.splitlines()))


def _group(line: bytes) -> Group | None:
    try:
        row = parsed(line)
        rollouts = [_rollout(one) for one in row["rollouts"]]
        right = sum(one.verdict == "right" for one in rollouts)
        counts = int(row.get("right") or right), int(row.get("of") or len(rollouts))
        texts = str(row["prompt"]), str(row["gold"])
        return Group(row["phase"], int(row["step"]), *texts, *counts, rollouts) if rollouts else None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def _rollout(row: dict) -> Rollout:
    numbers = {name: row.get(name) for name in ("reward", "score", "weight")}
    if not all(value is None or math.isfinite(value) for value in numbers.values()):
        raise ValueError("a number that JSON has not")
    return Rollout(str(row["answer"]), VERDICTS.get(row["label"], "ignored"), numbers)
