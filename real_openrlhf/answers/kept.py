"""Read rollouts.jsonl and write the report's section on it: groups of a step with weights, and held-out answers.

The file may come from others, so its text is escaped wherever it is shown.
"""

import html
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


# The report's page: held-out questions side by side, and groups with the weight of each answer

ABOUT = (
    "Every evaluation keeps its first answer to the same few held-out questions, which a hash of their text chose. "
    "Below them stand two training groups with right and wrong answers, of the first and of the last step that kept "
    "one. A score is the mean of log pi - log pi_old over an answer's tokens. A weight says how strongly the loss "
    "pushes the answer: above 0 up, below 0 down. Both are of the step's last update that trained the group. "
    "Built-in losses have neither."
)


def section(runs: Iterable[tuple[str, Path]]) -> str:
    """The section as HTML: the first run of each setting that kept answers; empty if no run did."""
    found: dict[str, tuple[str, list[Group]]] = {}
    for setting, folder in runs:
        if setting not in found and (groups := read(folder)):
            found[setting] = folder.name, groups
    parts = [
        f"<details{'' if number else ' open'}><summary>{_text(setting)}, run {_text(name)}</summary>"
        f"<div class=answers>{_held_out(groups)}{_trained(groups)}</div></details>"
        for number, (setting, (name, groups)) in enumerate(found.items())
    ]
    return f"<h3>Answers</h3><p class=soft>{_text(ABOUT)}</p>{''.join(parts)}" if parts else ""


def _held_out(groups: list[Group]) -> str:
    if not steps(groups, "eval"):
        return ""
    answered = {(group.prompt, group.gold, group.step): group for group in groups if group.phase == "eval"}
    rows = []
    for prompt, gold in dict.fromkeys((prompt, gold) for prompt, gold, _ in answered):
        of_steps = (answered.get((prompt, gold, step)) for step in moments(groups))
        cells = (_answer(group) if group else "<td></td>" for group in of_steps)
        rows.append(f"<td>{_text(prompt)}\n\nexpected: {_text(gold)}</td>{''.join(cells)}")
    return _table(["Held-out question", *(f"Step {step}" for step in moments(groups))], rows)


def _answer(group: Group) -> str:
    first = group.rollouts[0]
    verdict = f"<span class={first.verdict}>{first.verdict}</span>, {group.right} of {group.of} right"
    return f"<td>{verdict}\n{_text(first.answer)}</td>"


def _trained(groups: list[Group]) -> str:
    mixed = {group.step: group for group in groups if group.phase == "train" and 0 < group.right < group.of}
    return "".join(_weights(mixed[step]) for step in sorted({min(mixed), max(mixed)})) if mixed else ""


def _weights(group: Group) -> str:
    rows = []
    for rollout in group.rollouts:
        width = 5 * abs(rollout.weight) / group.largest
        bar = f"<span class='bar{' down' * (rollout.weight < 0)}' style='width:{width:.2f}rem'></span>"
        cells = (*map(rollout.shown, ("reward", "score")), f"{rollout.shown('weight')} {bar}")
        numbers = "".join(f"<td class=n>{cell}</td>" for cell in cells)
        verdict = f"<td class='n {rollout.verdict}'>{rollout.verdict}</td>"
        rows.append(f"{verdict}{numbers}<td>{_text(rollout.answer)}</td>")
    columns = ["Verdict", "Reward", "Score", "Weight", "Answer"]
    asked = f"<p>{group.title}\n{_text(group.prompt)}\nexpected: {_text(group.gold)}</p>"
    return asked + _table(columns, rows)


def _table(columns: list[str], rows: list[str]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class=scroll tabindex=0 role=region aria-label="{columns[0]}">{table}</div>'


def _text(words: str) -> str:
    return html.escape(short(words))
