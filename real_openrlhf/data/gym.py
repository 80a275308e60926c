"""`real-openrlhf data gym`: questions of reasoning-gym to train on and to test with, no question in both.

reasoning-gym draws its question number i with the seed plus i, so sets with two seeds share most of their questions.
Here one stream is drawn, a question that was there before is left out, and the rest is divided.
"""

import argparse
import contextlib
import io
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from real_openrlhf.data.problems import Problem
from real_openrlhf.errors import UserError, first_line
from real_openrlhf.files import parsed, sha256, write_json, write_jsonl
from real_openrlhf.parsing import positive, whole
from real_openrlhf.rewards.gym import tasks
from real_openrlhf.rewards.verifier.verdict import verify

PROMPT = "{}\n\nGive the final answer in \\boxed{{}}."
JUNK = ("xyzzy plugh", "?", "[]", "{}")
REPEATED, ACCEPTS_JUNK, REFUSES_GOLD = "repeated", "whose scorer accepts any text", "whose own answer is refused"
_HOPELESS = 50  # questions, none of which could be used


@dataclass
class Part:
    """One task of a mixture, at one difficulty."""

    task: str
    settings: dict[str, Any]
    weight: float = 1.0
    level: int | None = None
    drawn: int = 0
    left_out: Counter = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return self.task if self.level is None else f"{self.task}-level{self.level}"

    @property
    def unfit(self) -> int:
        return self.left_out[ACCEPTS_JUNK] + self.left_out[REFUSES_GOLD]

    def row(self, index: int, entry: dict) -> dict:
        about = {"task": self.task, "settings": self.settings}
        label = json.dumps(about | {key: entry[key] for key in ("answer", "metadata")}, ensure_ascii=False)
        message = {"role": "user", "content": PROMPT.format(entry["question"])}
        return {"prompt": [message], "label": label, "datasource": self.name, "id": f"{self.name}-{index}"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", metavar="TASK", help="gym: a task, or FILE.json with a mixture of tasks")
    group = parser.add_argument_group("gym only")
    group.add_argument("--train", type=positive, default=1000, help="questions to train on (default %(default)s)")
    group.add_argument("--test", type=positive, default=100, help="other questions, to test (default %(default)s)")
    group.add_argument("--seed", type=whole, default=0, help="of the questions (default %(default)s)")
    group.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the task, as JSON values"
    )


def run(args: argparse.Namespace) -> int:
    if args.out.exists() and not args.out.is_dir():
        raise UserError(f"{args.out} is a file: data of gym are a folder with train.jsonl and test.jsonl")
    if not args.task:
        raise UserError(f"data gym needs a task. There are: {', '.join(tasks.offered())}")
    parts = _mixture(Path(args.task), args.set) if args.task.endswith(".json") else [_single(args.task, args.set)]
    seen: set[str] = set()
    train: list[dict] = []
    test: list[dict] = []
    for part, to_train, to_test in zip(parts, _shares(parts, args.train), _shares(parts, args.test), strict=True):
        rows = list(
            tqdm(_draw(part, to_train + to_test, args.seed, seen), part.name, to_train + to_test, disable=None)
        )
        if len(rows) < to_train + to_test:
            raise UserError(_too_few(part, len(rows), to_train, to_test))
        test += rows[:to_test]
        train += rows[to_test:]
        print(f"{part.name}: {to_train} questions to train on, {to_test} to test. {_told(part)}")
    if len(parts) > 1:
        random.Random(args.seed).shuffle(train)
        random.Random(args.seed).shuffle(test)
    files = {args.out / "train.jsonl": train, args.out / "test.jsonl": test}
    for path, rows in files.items():
        write_jsonl(path, rows)
    about = {part.name: {"settings": part.settings, "drawn": part.drawn, "left_out": part.left_out} for part in parts}
    hashes = {path.name: sha256(path) for path in files}
    write_json(
        args.out / "manifest.json",
        {"reasoning_gym": tasks.RELEASE, "seed": args.seed, "tasks": about, "sha256": hashes},
    )
    print(f"{args.out}: train.jsonl with {len(train)} rows, test.jsonl with {len(test)}, no question in both")
    return 0


def _single(task: str, words: list[str]) -> Part:
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"--set {word}: KEY=VALUE is expected, for example --set max_terms=3")
        try:
            settings[key] = parsed(value)
        except ValueError:
            settings[key] = value
    tasks.check(task)
    return Part(task, settings)


def _mixture(path: Path, words: list[str]) -> list[Part]:
    if words:
        raise UserError(f"--set goes with one task. Write the settings into {path}")
    form = '{"tasks": [{"name": "chain_sum", "weight": 2, "level": 1, "set": {"min_terms": 2}}, ...]}'
    try:
        listed = parsed(path.read_text(encoding="utf-8"))["tasks"]
        parts = []
        for item in listed:
            if unknown := set(item) - {"name", "weight", "level", "set"}:
                raise UserError(f"{path}: {', '.join(sorted(unknown))} is unknown. Expected is {form}")
            level = int(item["level"]) if "level" in item else None
            parts.append(Part(str(item["name"]), dict(item.get("set", {})), float(item.get("weight", 1)), level))
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}). Give a file like {form}") from None
    except (ValueError, TypeError, LookupError) as error:
        raise UserError(f"{path} is no mixture ({first_line(error)}). Expected is {form}") from None
    if (
        not parts
        or any(not 0 < part.weight < 1e9 for part in parts)
        or len({part.name for part in parts}) < len(parts)
    ):
        raise UserError(f"{path}: at least one task, weights above 0, and no task twice at one level are expected")
    for part in parts:
        tasks.check(part.task)
        if part.level is not None:
            part.settings = tasks.level_settings(part.task, part.level) | part.settings
    return parts


def _shares(parts: list[Part], questions: int) -> list[int]:
    """Whole numbers in the proportion of the weights that add up."""
    total = sum(part.weight for part in parts)
    ends, passed = [], 0.0
    for part in parts:
        passed += part.weight
        ends.append(round(questions * passed / total))
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _draw(part: Part, wanted: int, seed: int, seen: set[str]) -> Iterator[dict]:
    """Questions that were not seen, whose scorer takes their own answer and no junk."""
    limit = 20 * wanted + 1000
    questions = tasks.dataset(part.task, part.settings, seed, limit)
    found = 0
    while found < wanted and part.drawn < limit and (found or part.unfit < _HOPELESS):
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # bf prints dots
                entry = questions[part.drawn]
        except (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"{part.task} cannot draw a question with these settings ({first_line(error)})") from error
        row = part.row(part.drawn, entry)
        part.drawn += 1
        key = Problem(0, entry["question"], ()).key
        objection = REPEATED if key in seen else _objection(part.task, row["label"], entry["answer"])
        seen.add(key)
        if objection:
            part.left_out[objection] += 1
        else:
            found += 1
            yield row


def _objection(task: str, label: str, gold: str | None) -> str | None:
    if task not in tasks.BY_ALGEBRA and any(_accepted(label, junk) for junk in JUNK if junk != gold):
        return ACCEPTS_JUNK
    if gold is not None and verify(f"\\boxed{{{gold}}}", label, grader="gym").score != 1.0:
        return REFUSES_GOLD
    return None


def _accepted(label: str, answer: str) -> bool:
    """In this process: it is our own text."""
    try:
        return tasks.right(label, answer)
    except tasks.ScorerRaised:
        return False


def _told(part: Part) -> str:
    counts = ", ".join(f"{count} ({count / part.drawn:.0%}) {why}" for why, count in part.left_out.items())
    return f"{part.drawn} were drawn; left out: {counts or 'none'}"


def _too_few(part: Part, found: int, to_train: int, to_test: int) -> str:
    refused = part.left_out[ACCEPTS_JUNK]
    if not found and refused:
        return f"{part.task} cannot be used: its scorer accepts any text, in {refused} of {part.drawn} questions"
    return (
        f"{part.name} has only {found} different questions that can be used, and {to_train} to train on and {to_test} "
        f"to test are {to_train + to_test}. {_told(part)}. Ask for fewer with --train and --test, or widen the "
        "settings with --set"
    )
