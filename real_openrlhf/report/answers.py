"""The kept answers of a run (rollouts.jsonl): `real-openrlhf show`, and what the report's page shows of them.

The file may come from others, so its text is escaped wherever it is shown.
"""

import argparse
import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from real_openrlhf.base.errors import UserError, plain
from real_openrlhf.base.files import ROLLOUTS, parsed, read_bytes
from real_openrlhf.base.parsing import did_you_mean, path_of, whole
from real_openrlhf.runs import run_folder

VERDICTS = {"positive": "right", "negative": "wrong"}
LETTERS = 600  # at most, of each text that is shown
BAR = 12  # characters of the bar for the largest weight
KINDS = {"train": "groups", "eval": "held-out answers (--eval)"}
ABOUT = (
    "Every evaluation keeps its first answer to the same few held-out questions, which a hash of their text chose. "
    "Below them stand two training groups with right and wrong answers, of the first and of the last step that kept "
    "one. A score is the mean of log pi - log pi_old over an answer's tokens. A weight says how strongly the loss "
    "pushes the answer: above 0 up, below 0 down. Both are of the step's last update that trained the group. "
    "Built-in losses have neither."
)


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


def _group(line: bytes) -> Group | None:
    try:
        row = parsed(line)
        rollouts = []
        for one in row["rollouts"]:
            numbers = {name: one.get(name) for name in ("reward", "score", "weight")}
            if not all(value is None or math.isfinite(value) for value in numbers.values()):
                return None
            rollouts.append(Rollout(str(one["answer"]), VERDICTS.get(one["label"], "ignored"), numbers))
        right = sum(one.verdict == "right" for one in rollouts)
        counts = int(row.get("right") or right), int(row.get("of") or len(rollouts))
        texts = str(row["prompt"]), str(row["gold"])
        return Group(row["phase"], int(row["step"]), *texts, *counts, rollouts) if rollouts else None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def steps(groups: Iterable[Group], phase: str) -> list[int]:
    return sorted({group.step for group in groups if group.phase == phase})


def moments(groups: Sequence[Group]) -> list[int]:
    """The evaluations at the start, in the middle and at the end."""
    known = steps(groups, "eval")
    if not known:
        return []
    return sorted({known[0], min(known, key=lambda step: abs(2 * step - known[0] - known[-1])), known[-1]})


def held_out(groups: Sequence[Group]) -> list[tuple[tuple[str, str], list[Group | None]]]:
    """Each held-out question and its expected answer -> what was answered at each of the `moments`."""
    answered = {(group.prompt, group.gold, group.step): group for group in groups if group.phase == "eval"}
    asked = dict.fromkeys((prompt, gold) for prompt, gold, _ in answered)
    return [(pair, [answered.get((*pair, step)) for step in moments(groups)]) for pair in asked]


def first_and_last_mixed(groups: Sequence[Group]) -> list[Group]:
    """Training groups with right and wrong answers, of the first and of the last step that kept one."""
    mixed = {group.step: group for group in groups if group.phase == "train" and 0 < group.right < group.of}
    return [mixed[step] for step in sorted({min(mixed), max(mixed)})] if mixed else []


def short(text: str) -> str:
    """The beginning and the end of a text, with control characters escaped and every line end a line feed."""
    half = LETTERS // 2
    text = text if len(text) <= LETTERS else f"{text[:half]} ... {text[-half:]}"
    return plain("\n".join(text.splitlines()))


# In a terminal


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=path_of, metavar="RUN_DIR", help="the folder of a run")
    parser.add_argument("--step", type=whole, metavar="N", help="groups of this step (default: the last one kept)")
    parser.add_argument(
        "--eval",
        action="store_true",
        help="the same held-out questions at the start, in the middle and at the end; with --step those of that step",
    )


def run(args: argparse.Namespace) -> int:
    groups, phase = read(args.run), "eval" if args.eval else "train"
    if not groups:
        raise UserError(_why_none(args.run))
    known = steps(groups, phase)
    kinds = (f"{name} of {_ranges(there)}" for kind, name in KINDS.items() if (there := steps(groups, kind)))
    kept = f"Kept: {'; '.join(kinds)}."
    if args.step not in (None, *known) or not known:
        raise UserError(f"{args.run / ROLLOUTS} has no {KINDS[phase]} of that step. {kept}")
    chosen = [args.step] if args.step is not None else moments(groups) if args.eval else known[-1:]
    found = [group for group in groups if group.phase == phase and group.step in chosen]
    if args.eval:  # a question's answers one below the other
        found.sort(key=lambda group: group.prompt)
    for (prompt, gold), own in groupby(found, lambda group: (group.prompt, group.gold)):
        print(_hanging("question  ", prompt), _hanging("expected  ", gold), sep="\n")
        for group in own:
            print(group.title, *_answers(group), sep="\n")
        print()
    print(kept)
    return 0


def _why_none(folder: Path) -> str:
    if not folder.is_dir():
        near = did_you_mean(folder.name, (path.name for path in folder.parent.glob("*/")))
        return f"{folder} has no answers: there is no such folder. {near}Name a run's folder, like runs/NAME."
    record = run_folder.read(folder) if (folder / "run.json").exists() else {}
    if record.get("status") == "failed":
        return (
            f"{folder} has no answers: the run failed ({record.get('reason')}). Read {folder / 'train.log'}, then "
            "continue it: the same command with --resume."
        )
    if record.get("status") == "running":
        return f"{folder} has no answers yet: the run has not ended its first step. Wait for it."
    return (
        f"{folder} has no answers: {ROLLOUTS} is missing, empty or damaged. Name a run's folder, like runs/NAME. Runs "
        "write it with --train.keep_groups 1 or more (default: 2); campaigns of compare --publish leave it out."
    )


def _ranges(numbers: list[int]) -> str:
    """`steps 1 to 40`, or `steps 0, 20, 40`: a row of neighbours is a range."""
    rows = [[number for _, number in row] for _, row in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    parts = (f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows)
    return f"step{'s' * (len(numbers) > 1)} {', '.join(parts)}"


def _answers(group: Group) -> Iterator[str]:
    for rollout in group.rollouts:
        numbers = f"reward {rollout.shown('reward')}"
        if group.phase == "train":
            bar = ("+" if rollout.weight > 0 else "-") * round(BAR * abs(rollout.weight) / group.largest)
            numbers += f"  score {rollout.shown('score')}  weight {rollout.shown('weight')}  {bar}"
        yield f"  {rollout.verdict:7}  {numbers}".rstrip()
        yield _hanging("           ", rollout.answer)


def _hanging(head: str, text: str) -> str:
    return head + textwrap.indent(short(text) or "(nothing)", " " * len(head), lambda line: True)[len(head) :]
