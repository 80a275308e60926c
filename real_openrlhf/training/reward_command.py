"""`real-openrlhf reward FILE`: try a reward function before a run, with the calls that a run makes."""

import argparse
import asyncio
import contextlib
import json
import logging
import math
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from real_openrlhf.base import reward_variables
from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.parsing import path_of
from real_openrlhf.base.user_files import reward_function
from real_openrlhf.data.problems import GOLD_COLUMNS, PROBLEM_COLUMNS
from real_openrlhf.data.sources import read_local
from real_openrlhf.hooks.rollout.reward_calls import Fault, RewardCalls
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


def run(args: argparse.Namespace) -> int:
    reward_variables.refuse_unreadable()
    rows = [*islice(read_local(args.data).rows, ROWS)] if args.data else EXAMPLES
    prompt, label = (
        next((name for name in names if all(name in row for row in rows)), None)
        for names in (("prompt", *PROBLEM_COLUMNS), ("label", *GOLD_COLUMNS))
    )
    if not rows or prompt is None or label is None:
        raise UserError(
            f"{args.data}: rows need `prompt` and `label`, or columns with usual names. Make the file with "
            "`real-openrlhf data`."
        )
    trial = Trial(args.file, [(_text(row[prompt]), str(row[label])) for row in rows])
    count = 0
    with exits_told():
        for problem in trial.problems():
            print(f"WRONG  {problem}", flush=True)
            count += 1
    if count:
        print(f"{count} wrong: change {args.file} before a run trains on it")
        return 2
    print(f"ok     {sum(score > RIGHT for score in trial.first)} of {len(rows)} expected answers are right")
    print(f"ok     {trial.scale()}")
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
    logging.disable(logging.WARNING)  # the verifier would warn of each answer without a verdict
    try:
        yield
    finally:
        os._exit = end
        logging.disable(logging.NOTSET)


class Trial:
    """Tries one reward file on (prompt, label) rows."""

    def __init__(self, file: Path, rows: Sequence[tuple[str, str]]) -> None:
        self.file, self.rows = file, rows
        self.seen: set[float] = set()  # scores
        self.first: list[float] = []  # of the expected answers in their best form

    def problems(self) -> Iterator[str]:
        """A fault that makes the rest meaningless ends the trial."""
        if wrong := reward_file_problem(self.file):
            yield f"it {wrong}"
            return
        try:
            self.calls = RewardCalls(reward_function(self.file))
            self.calls.seconds = min(SECONDS, self.calls.limit)
            for check in (self.junk, self.expected, self.repeated):
                yield from check()
        except (UserError, ValueError) as error:
            yield str(error)

    def junk(self) -> Iterator[str]:
        few = self.rows[:3]
        scores = {name: self.scores([(ask, text, label) for ask, label in few], name) for name, text in JUNK.items()}
        if rewarded := [name for name, found in scores.items() if any(score > RIGHT for score in found)]:
            yield f"it calls these right: {', '.join(rewarded)}"

    def expected(self) -> Iterator[str]:
        """Give the label as the answer, in the form that scores best; then also with another question's label."""
        forms = {form: self.scores(self.answered(form), "the expected answer") for form in FORMS}
        self.form = max(FORMS, key=lambda form: sum(score > RIGHT for score in forms[form]))
        self.first = forms[self.form]
        right, count = sum(score > RIGHT for score in self.first), len(self.rows)
        if right < 0.8 * count:
            yield f"it calls {count - right} of {count} expected answers wrong, in a box, in a sentence or alone"
        if (silent := sum(map(math.isnan, self.first)) / count) > 0.2:
            yield f"no verdict on {silent:.0%} of them: these would not train"
        others = [label for _, label in (*self.rows[1:], self.rows[0])]
        asked = zip(self.answered(self.form), others, strict=True)
        swapped = [(prompt, text, other) for (prompt, text, own), other in asked if other != own]
        fooled = sum(score > RIGHT for score in self.scores(swapped, "another label"))
        if fooled > len(swapped) / 2:
            yield f"it does not read the label: {fooled} of {len(swapped)} answers are right for another question too"

    def repeated(self) -> Iterator[str]:
        for how, at_once in (("called again", 1), (f"in {AT_ONCE} threads at once", AT_ONCE)):
            after = self.scores(self.answered(self.form), how, at_once)
            count = sum(str(one) != str(other) for one, other in zip(self.first, after, strict=True))  # nan is nan
            if count:
                yield f"it scores {count} of {len(after)} answers differently {how}: no run could be repeated"
        if not self.seen <= {0.0, 1.0} and not self.threshold():
            yield f"{self.scale()}: no threshold divides those of right and wrong answers. Return other `scores`"

    def scale(self) -> str:
        """REAL's labels are 0 and 1: a run with other scores stops after its first rollouts, without a flag."""
        known = [f"{score:g}" for score in sorted(self.seen)]
        said = f"its scores are {', '.join(known[:8])}{' ...' * (len(known) > 8)}"
        if not (flag := " ".join(self.threshold())):
            return said
        return f"{said}: REAL needs {flag}; objectives of graded rewards, as listwise, read them as they are"

    def threshold(self) -> list[str]:
        """The flag that reads scores other than 0 and 1, with a number between those of wrong and right answers."""
        right = [score for score in self.first if score > RIGHT]
        if self.seen <= {0.0, 1.0} or not right:
            return []
        wrong = max((score for score in self.seen if score <= RIGHT), default=0.0)
        return ["--algo.real.label_threshold", f"{(wrong + min(right)) / 2:g}"]

    def answered(self, form: str) -> list[tuple[str, str, str]]:
        return [(prompt, form % _answer(label), label) for prompt, label in self.rows]

    def scores(self, asked: Sequence[tuple[str, str, str]], what: str, at_once: int = 1) -> list[float]:
        """Scores of (prompt, response, label) triples; each call is made as in a run."""

        async def all_of_them() -> list[float]:
            limit = asyncio.Semaphore(at_once)

            async def one(prompt: str, response: str, label: str) -> float:
                async with limit:
                    return (await self.calls.asked(prompt + response, prompt, label))["scores"]

            async with asyncio.TaskGroup() as group:  # after a fault it cancels the other calls
                tasks = [group.create_task(one(*words)) for words in asked]
            return [task.result() for task in tasks]

        try:
            found = asyncio.run(all_of_them())
        except ExceptionGroup as several:
            fault = several.exceptions[0]
            assert isinstance(fault, Fault), fault
            raise UserError(f"it fails ({fault.kind}) on {what}: {first_line(fault)}") from fault
        self.seen.update(score for score in found if not math.isnan(score))
        return found


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
