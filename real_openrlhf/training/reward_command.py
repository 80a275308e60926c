"""`real-openrlhf reward FILE`: try a reward function before a run, with the calls that a run makes."""

import argparse
import asyncio
import contextlib
import json
import logging
import math
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.parsing import path_of
from real_openrlhf.base.user_files import reward_function
from real_openrlhf.data.sources import read_local
from real_openrlhf.hooks.rollout.reward_calls import Fault, RewardCalls
from real_openrlhf.training.checks.data_check import COLUMNS
from real_openrlhf.training.checks.reward_check import reward_file_problem

SECONDS = 20.0  # a call that takes longer counts as hanging
ROWS, AT_ONCE = 24, 16
RIGHT = 0.5  # a score above it is a right answer
EXAMPLES = [
    {"prompt": f"What is {n} + {n * n}? Put the answer in a box.", "label": str(n + n * n)} for n in range(2, 26)
]
FORMS = (r"\boxed{%s}", "The answer is %s.", "%s")
JUNK = {
    "empty": "",
    "no box": "I do not know.",
    "junk": "lorem ipsum " * 20,
    "an empty box": r"\boxed{}",
    "Unicode": "答え　は ４２！ \U0001f600 \ud800",
    "100,000 letters": "so we go on and on " * 5300,
    "400 open braces": r"\boxed{" * 400,
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=path_of, metavar="FILE", help="the Python file of --reward.remote_url")
    parser.add_argument(
        "--data",
        type=path_of,
        metavar="SET",
        help="JSONL with `prompt` and `label`, such as --data of the run (default: sums of whole numbers)",
    )
    for flag, column in COLUMNS.items():
        parser.add_argument(flag, default=column, metavar="NAME", help="a column of --data (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    rows = [*islice(read_local(args.data).rows, ROWS)] if args.data else EXAMPLES
    prompt, label = (getattr(args, flag.removeprefix("--")) if args.data else COLUMNS[flag] for flag in COLUMNS)
    if not rows or not all(prompt in row and label in row for row in rows):
        raise UserError(
            f"{args.data}: rows need `{prompt}` and `{label}`. Name other columns with {' and '.join(COLUMNS)}, or "
            "make the file with `real-openrlhf data`."
        )
    trial = Trial(args.file, [(_text(row[prompt]), str(row[label])) for row in rows])
    with exits_told():
        problems = trial.problems()
    if problems:
        print(f"{len(problems)} wrong: change {args.file} before a run trains on it")
        return 2
    print(" ".join(["use it: real-openrlhf train --reward.remote_url", str(args.file), *trial.threshold()]))
    return 0


@contextlib.contextmanager
def exits_told() -> Iterator[None]:
    """Within the block `os._exit` raises, so that a function which calls it is named. A process forked by it ends."""
    process, end = os.getpid(), os._exit

    def told(status: int) -> NoReturn:
        if os.getpid() != process:
            end(status)
        raise SystemExit(status)

    os._exit = told
    try:
        yield
    finally:
        os._exit = end


class Trial:
    """Tries one reward file on (prompt, label) rows. Each method prints one line per test."""

    def __init__(self, file: Path, rows: Sequence[tuple[str, str]]) -> None:
        self.file, self.rows, self.wrong = file, rows, list[str]()
        self.seconds: list[float] = []  # of the calls that are timed
        self.seen: set[float] = set()  # scores
        self.first: list[float] = []  # of the expected answers in their best form

    def problems(self) -> list[str]:
        """A fault that makes the rest meaningless ends the trial."""
        logging.disable(logging.WARNING)  # the verifier would warn of each answer without a verdict
        try:
            self.load()
            self.junk()
            self.expected()
            self.repeated()
            self.say(*self.scale())
        except UserError as error:
            self.say("", str(error))
        finally:
            logging.disable(logging.NOTSET)
        return self.wrong

    def say(self, fine: str, wrong: str | None = None) -> None:
        print(f"WRONG  {wrong}" if wrong else f"ok     {fine}", flush=True)
        self.wrong += [wrong] if wrong else []

    def load(self) -> None:
        """Load the file as every rollout actor does."""
        if wrong := reward_file_problem(self.file):
            raise UserError(f"it {wrong}")
        started = time.monotonic()
        try:
            self.calls = RewardCalls(reward_function(self.file))
        except ValueError as error:
            raise UserError(str(error)) from error
        self.calls.seconds = min(SECONDS, self.calls.limit)
        self.say(f"it loads, in {time.monotonic() - started:.1f} s")

    def junk(self) -> None:
        few = self.rows[:3]
        rewarded = []
        for name, text in JUNK.items():
            scores = self.scores([(prompt, text, label) for prompt, label in few], name)
            rewarded += [name] if any(score > RIGHT for score in scores) else []
        self.say(f"it takes {', '.join(JUNK)}")
        self.say("none of these is right", f"it calls these right: {', '.join(rewarded)}" if rewarded else None)

    def expected(self) -> None:
        """Give the label as the answer, in the form that scores best; then also with another question's label."""
        forms = {form: self.scores(self.answered(form), "the expected answer", timed=True) for form in FORMS}
        self.form = max(FORMS, key=lambda form: sum(score > RIGHT for score in forms[form]))
        self.first = forms[self.form]
        right, count = sum(score > RIGHT for score in self.first), len(self.rows)
        silent = sum(map(math.isnan, self.first)) / count
        few = f"it calls {count - right} of {count} expected answers wrong, in a box, in a sentence or alone"
        self.say(f"{right} of {count} expected answers are right", few if right < 0.8 * count else None)
        without = f"no verdict on {silent:.0%} of them"
        self.say(without, f"{without}: these would not train" if silent > 0.2 else None)
        labels = [label for _, label in (*self.rows[1:], self.rows[0])]
        other = [
            (p, text, label)
            for (p, text, own), label in zip(self.answered(self.form), labels, strict=True)
            if label != own
        ]
        fooled = sum(score > RIGHT for score in self.scores(other, "another label"))
        unread = f"it does not read the label: {fooled} of {len(other)} answers are right for another question too"
        if right >= 0.8 * count or fooled > len(other) / 2:  # else all answers are wrong, whatever the label is
            self.say("it reads the label", unread if fooled > len(other) / 2 else None)

    def repeated(self) -> None:
        asked = self.answered(self.form)
        again, together = self.scores(asked, "the same again"), self.scores(asked, "several at once", AT_ONCE)
        self.say("the same answer has the same score again", self.differs(again, "called again"))
        self.say(f"{AT_ONCE} calls at once give the same", self.differs(together, f"in {AT_ONCE} threads at once"))
        middle, slowest = statistics.median(self.seconds), max(self.seconds)
        self.say(f"a call takes {middle * 1000:.0f} ms, the slowest {slowest:.2f} s")

    def differs(self, after: Sequence[float], how: str) -> str | None:
        count = sum(str(one) != str(other) for one, other in zip(self.first, after, strict=True))  # as text nan is nan
        unlike = f"it scores {count} of {len(after)} answers differently {how}: no run could be repeated"
        return unlike if count else None

    def scale(self) -> tuple[str, str | None]:
        """REAL's labels are 0 and 1: a run with other scores stops after its first rollouts, without a flag."""
        known = [f"{score:g}" for score in sorted(self.seen)]
        said = f"its scores are {', '.join(known[:8])}{' ...' * (len(known) > 8)}"
        if self.seen <= {0.0, 1.0}:
            return said, None
        if not self.threshold():
            return "", f"{said}: no threshold divides those of right and wrong answers. Return other `scores`"
        flag = " ".join(self.threshold())
        return f"{said}: REAL needs {flag}; objectives of graded rewards, as listwise, read them as they are", None

    def threshold(self) -> list[str]:
        """The flag that reads scores other than 0 and 1, with a number between those of wrong and right answers."""
        right = [score for score in self.first if score > RIGHT]
        wrong = [score for score in self.seen if score <= RIGHT]
        if self.seen <= {0.0, 1.0} or not right:
            return []
        return ["--algo.real.label_threshold", f"{(max(wrong, default=0.0) + min(right)) / 2:g}"]

    def answered(self, form: str) -> list[tuple[str, str, str]]:
        return [(prompt, form % _answer(label), label) for prompt, label in self.rows]

    def scores(
        self, asked: Sequence[tuple[str, str, str]], what: str, at_once: int = 1, timed: bool = False
    ) -> list[float]:
        """Scores of (prompt, response, label) triples; each call is made as in a run."""

        async def all_of_them() -> list[float]:
            limit = asyncio.Semaphore(at_once)

            async def one(prompt: str, response: str, label: str) -> float:
                async with limit:
                    started = time.monotonic()
                    score = (await self.calls.asked(prompt + response, prompt, label))["scores"]
                    self.seen |= set() if math.isnan(score) else {score}
                    self.seconds += [time.monotonic() - started] if timed else []
                    return score

            async with asyncio.TaskGroup() as group:  # after a fault it cancels the other calls
                tasks = [group.create_task(one(*words)) for words in asked]
            return [task.result() for task in tasks]

        try:
            return asyncio.run(all_of_them())
        except ExceptionGroup as several:
            fault = several.exceptions[0]
            assert isinstance(fault, Fault), fault
            raise UserError(f"it fails ({fault.kind}) on {what}: {first_line(fault)}") from fault


def _answer(label: str) -> str:
    """A label may be a question of reasoning-gym, or a list of equal answers."""
    try:
        value = json.loads(label)
        return str(value["answer"] if isinstance(value, dict) else value[0] if isinstance(value, list) else label)
    except (LookupError, ValueError):
        return label


def _text(prompt: Any) -> str:
    """A chat's last message, or the text itself."""
    return str(prompt[-1]["content"]) if isinstance(prompt, list) else str(prompt)
