"""`real-openrlhf data gym`: questions of reasoning-gym to train on and to test with, no question in both.

reasoning-gym draws its question number i with the seed plus i, so sets with two seeds share most of their questions.
This module draws one stream, leaves out repeated questions, and divides the rest into train and test.
"""

import argparse
import contextlib
import io
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tqdm import tqdm

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.files import parsed
from real_openrlhf.base.manifests import refuse_foreign_rows, write_rows
from real_openrlhf.base.parsing import positive, whole
from real_openrlhf.data.problems import Problem
from real_openrlhf.rewards import gym_tasks
from real_openrlhf.rewards.graders import Asked, judge
from same_answer.process import NoVerdict

PROMPT = "{}\n\nGive the final answer in \\boxed{{}}."
JUNK = ("xyzzy plugh", "?", "[]", "{}")
REPEATED, ACCEPTS_JUNK, REFUSES_GOLD = "repeated", "whose scorer accepts any text", "whose own answer is refused"
DEFAULTS: dict[str, Any] = {"train": 1000, "test": 100, "seed": 0, "set": []}
_HOPELESS = 50  # give up after this many questions if none can be used


@dataclass
class Part:
    """One task of a mixture, at one difficulty."""

    task: str
    settings: dict[str, Any]
    weight: float = 1.0
    place: int = 1  # its number among the mixture's parts of this task
    drawn: int = 0
    left_out: Counter = field(default_factory=Counter)

    @property
    def name(self) -> str:
        return self.task if self.place == 1 else f"{self.task}-{self.place}"

    @property
    def account(self) -> str:
        counts = ", ".join(f"{count} ({count / self.drawn:.0%}) {why}" for why, count in self.left_out.items())
        return f"{self.drawn} were drawn; left out: {counts or 'none'}"

    def row(self, index: int, entry: dict) -> dict:
        about = {"task": self.task, "settings": self.settings}
        label = json.dumps(about | {key: entry[key] for key in ("answer", "metadata")}, ensure_ascii=False)
        message = {"role": "user", "content": PROMPT.format(entry["question"])}
        return {"prompt": [message], "label": label, "datasource": self.name, "id": f"{self.name}-{index}"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", nargs="?", metavar="TASK", help="gym: a task, or FILE.json with a mixture of tasks")
    group = parser.add_argument_group("gym only")
    group.add_argument(
        "--train", type=positive, default=DEFAULTS["train"], help="questions to train on (default %(default)s)"
    )
    group.add_argument(
        "--test", type=positive, default=DEFAULTS["test"], help="other questions, to test (default %(default)s)"
    )
    group.add_argument("--seed", type=whole, default=DEFAULTS["seed"], help="of the questions (default %(default)s)")
    group.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the task, as JSON values"
    )


def run(args: argparse.Namespace) -> int:
    if args.out.exists() and not args.out.is_dir():
        raise UserError(f"{args.out} is a file: data of gym are a folder with train.jsonl and test.jsonl")
    if not args.task:
        raise UserError(f"data gym needs a task. There are: {', '.join(gym_tasks.offered())}")
    parts = _parts(args.task, args.set)
    for part in parts:
        gym_tasks.check(part.task)
    files = [args.out / name for name in ("train.jsonl", "test.jsonl")]
    refuse_foreign_rows("--out", files, args.out / "manifest.json")
    seen: set[str] = set()
    train: list[dict] = []
    test: list[dict] = []
    for part, to_train, to_test in zip(parts, _shares(parts, args.train), _shares(parts, args.test), strict=True):
        wanted = to_train + to_test
        rows = list(tqdm(_draw(part, wanted, args.seed, seen), part.name, wanted, disable=None))
        if len(rows) < wanted:
            raise UserError(
                f"{part.name} has only {len(rows)} questions that can be used, and {wanted} are asked for. "
                f"{part.account}. Ask for fewer with --train and --test, widen the settings with --set, or take "
                "another task"
            )
        test += rows[:to_test]
        train += rows[to_test:]
        print(f"{part.name}: {to_train} questions to train on, {to_test} to test. {part.account}")
    if len(parts) > 1:
        for rows in (train, test):
            random.Random(args.seed).shuffle(rows)
    about = {part.name: {"settings": part.settings, "drawn": part.drawn, "left_out": part.left_out} for part in parts}
    made = {"reasoning_gym": gym_tasks.RELEASE, "seed": args.seed, "tasks": about}
    write_rows(dict(zip(files, (train, test), strict=True)), args.out / "manifest.json", made)
    print(f"{args.out}: train.jsonl with {len(train)} rows, test.jsonl with {len(test)}, no question in both")
    return 0


def _parts(task: str, words: list[str]) -> list[Part]:
    """One task with its settings KEY=VALUE, or the mixture of a JSON file."""
    if not task.endswith(".json"):
        settings = {}
        for word in words:
            key, equals, value = word.partition("=")
            if not equals:
                raise UserError(f"--set {word}: KEY=VALUE is expected, for example --set max_terms=3")
            settings[key] = value
            with contextlib.suppress(ValueError):
                settings[key] = parsed(value)
        return [Part(task, settings)]
    if words:
        raise UserError(f"--set goes with one task. Write the settings into {task}")
    form = '{"tasks": [{"name": "chain_sum", "weight": 2, "set": {"min_terms": 2}}, ...]}'
    try:
        items = parsed(Path(task).read_text(encoding="utf-8"))["tasks"]
        names = [str(item["name"]) for item in items]
        parts = [
            Part(name, dict(item.get("set", {})), float(item.get("weight", 1)), names[: number + 1].count(name))
            for number, (name, item) in enumerate(zip(names, items, strict=True))
        ]
        if unknown := set().union(*items) - {"name", "set", "weight"}:
            raise ValueError(f"{', '.join(sorted(unknown))} is unknown")
        if not parts or not all(0 < part.weight < 1e9 for part in parts):
            raise ValueError("it needs at least one task, and weights above 0")
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(f"{task} is no mixture of tasks ({first_line(error)}). Expected is {form}") from None
    return parts


def _shares(parts: list[Part], questions: int) -> list[int]:
    """Split `questions` into whole numbers in the proportion of the parts' weights."""
    weights = [part.weight for part in parts]
    ends = [round(questions * sum(weights[:count]) / sum(weights)) for count in range(len(parts) + 1)]
    return [end - start for start, end in pairwise(ends)]


def _draw(part: Part, wanted: int, seed: int, seen: set[str]) -> Iterator[dict]:
    """Draw new questions whose scorer accepts their own answer and no junk text."""
    limit = 20 * wanted + 1000
    questions = gym_tasks.dataset(part.task, part.settings, seed, limit)
    found = 0
    while found < wanted and part.drawn < limit and (found or part.drawn - part.left_out[REPEATED] < _HOPELESS):
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # the task bf prints dots
                entry = questions[part.drawn]
        except Exception as error:  # the library does not check all settings beforehand
            raise UserError(f"{part.task} cannot draw a question with these settings ({first_line(error)})") from error
        row = part.row(part.drawn, entry)
        part.drawn += 1
        key = Problem(0, entry["question"], ()).key
        objection = REPEATED if key in seen else _objection(row["label"], entry["answer"])
        seen.add(key)
        if objection:
            part.left_out[objection] += 1
        else:
            found += 1
            yield row


def _objection(label: str, gold: str | None) -> str | None:
    for junk in JUNK:
        with contextlib.suppress(NoVerdict):
            if junk != gold and gym_tasks.right(label, junk):  # safe in this process, because the text is ours
                return ACCEPTS_JUNK
    if gold is not None and judge(Asked(f"\\boxed{{{gold}}}", label), grader="gym").score != 1.0:
        return REFUSES_GOLD
    return None
