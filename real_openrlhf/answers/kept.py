"""Read rollouts.jsonl: groups of a step with weights, and held-out answers, for a terminal and for the report's page.

The file may come from others, so its text is escaped wherever it is shown.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base.errors import plain
from real_openrlhf.base.files import ROLLOUTS, parsed, read_bytes

VERDICTS = {"positive": "right", "negative": "wrong"}
LETTERS = 600  # at most, of each text that is shown


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
    """The rollouts of one prompt that a training step kept; an evaluation keeps one rollout."""

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
    """The groups in the order of writing; lines that are cut off or in another format are skipped."""
    text = read_bytes(folder / ROLLOUTS) if (folder / ROLLOUTS).exists() else b""
    return [group for line in text.splitlines() if (group := _group(line)) is not None]


def steps(groups: Iterable[Group], phase: str) -> list[int]:
    return sorted({group.step for group in groups if group.phase == phase})


def moments(groups: Sequence[Group]) -> list[int]:
    """The evaluations at the start, in the middle and at the end."""
    known = steps(groups, "eval")
    if not known:
        return []
    return sorted({known[0], min(known, key=lambda step: abs(2 * step - known[0] - known[-1])), known[-1]})


def short(text: str) -> str:
    """The beginning and the end of a text, with control characters escaped and every line end a line feed."""
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
        raise ValueError("a number is not finite")
    return Rollout(str(row["answer"]), VERDICTS.get(row["label"], "ignored"), numbers)


# What the report's page shows

ABOUT = (
    "Every evaluation keeps its first answer to the same few held-out questions, which a hash of their text chose. "
    "Below them stand two training groups with right and wrong answers, of the first and of the last step that kept "
    "one. A score is the mean of log pi - log pi_old over an answer's tokens. A weight says how strongly the loss "
    "pushes the answer: above 0 up, below 0 down. Both are of the step's last update that trained the group. "
    "Built-in losses have neither."
)


def held_out(groups: Sequence[Group]) -> list[tuple[tuple[str, str], list[Group | None]]]:
    """Each held-out question and its expected answer -> what was answered at each of the `moments`."""
    answered = {(group.prompt, group.gold, group.step): group for group in groups if group.phase == "eval"}
    asked = dict.fromkeys((prompt, gold) for prompt, gold, _ in answered)
    return [(pair, [answered.get((*pair, step)) for step in moments(groups)]) for pair in asked]


def first_and_last_mixed(groups: Sequence[Group]) -> list[Group]:
    """Training groups with right and wrong answers, of the first and of the last step that kept one."""
    mixed = {group.step: group for group in groups if group.phase == "train" and 0 < group.right < group.of}
    return [mixed[step] for step in sorted({min(mixed), max(mixed)})] if mixed else []
