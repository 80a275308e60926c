"""`real-openrlhf reward FILE`: try a reward function before a run, with the calls that a run makes."""

import argparse
import asyncio
import contextlib
import logging
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

from real_openrlhf.base import reward_variables
from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.parsing import path_of
from real_openrlhf.base.user_files import reward_function
from real_openrlhf.data.problems import GOLD_COLUMNS, PROBLEM_COLUMNS, answer_of, raw_label
from real_openrlhf.data.sources import is_hub_id
from real_openrlhf.hooks.rollout.reward_calls import Fault, RewardCalls
from real_openrlhf.recipes.recipes import TRAINING_ROWS
from real_openrlhf.training.checks.data_check import COLUMNS
from real_openrlhf.training.checks.reward_check import reward_file_problem
from real_openrlhf.training.checks.run_rows import CHECKED, rows_of
from real_openrlhf.training.run_inputs import training_set

SECONDS = 20.0  # a call that takes longer counts as hanging
ROWS, AT_ONCE = 24, 16
RIGHT = 0.5  # a score above it is a right answer
EXAMPLES = [
    {"prompt": f"What is {n} + {n * n}? Put the answer in a box.", "label": str(n + n * n)} for n in range(2, 26)
]
FORMS = (r"\boxed{%s}", "The answer is %s.", "%s", "#### %s")
# Names of the prompt's column and of the label's; of several the first counts.
USUAL = tuple([*dict.fromkeys(names)] for names in (("prompt", *PROBLEM_COLUMNS), ("label", *GOLD_COLUMNS)))
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
    parser.add_argument("file", type=_file, metavar="FILE", help="the Python file of --reward.remote_url")
    parser.add_argument(
        "--data",
        metavar="SET",
        help="--data of the run: a file, or a prepared set by its name (default: sums of whole numbers)",
    )
    for flag, named in zip(COLUMNS, USUAL, strict=True):
        what = f"the {named[0]}'s column in --data (default: {', '.join(named)})"
        parser.add_argument(flag, metavar="NAME", dest=named[0], help=what)


def _file(text: str) -> Path:
    if "://" in text:
        raise argparse.ArgumentTypeError(
            "a URL is no file, and this command tries a file. `real-openrlhf train --dry-run --reward.remote_url URL` "
            "asks whether the server answers"
        )
    return path_of(text)


def run(args: argparse.Namespace) -> int:
    reward_variables.refuse_unreadable()
    if not args.file.is_file():
        raise UserError(f"{args.file} does not exist. Name a Python file with reward_func")
    rows = _rows(args.data) if args.data else EXAMPLES
    asked = [(flag, vars(args)[named[0]], named) for flag, named in zip(COLUMNS, USUAL, strict=True)]
    prompt, label = (_column(rows, *one) for one in asked)
    trial = Trial(args.file, [(_text(row[prompt]), row[label]) for row in rows])
    count = 0
    with exits_told():
        for problem in trial.problems():
            print(f"WRONG  {problem}", flush=True)
            count += 1
    if count:
        what = f"{args.file} or {args.data}" if args.data else args.file
        print(f"{count} wrong: change {what} before a run trains on it")
        return 2
    print(f"ok     {sum(score > RIGHT for score in trial.first)} of {len(rows)} expected answers are right")
    print(f"ok     {trial.scale()}")
    words = ["--data", args.data] if args.data else []
    for flag, column in zip(COLUMNS, (prompt, label), strict=True):
        words += [flag, column] if column != COLUMNS[flag] else []
    words += ["--data.apply_chat_template"] if isinstance(rows[0][prompt], list) else []
    words = ["--reward.remote_url", str(args.file), *words, *trial.threshold()]
    print(f"use it: real-openrlhf train {shlex.join(words)}")
    return 0


def _column(rows: list[dict], flag: str, given: str | None, usual: Sequence[str]) -> str:
    """The column's name in each row."""
    for name in [given] if given else usual:
        if rows and all(name in row for row in rows):
            return name
    there = ", ".join(sorted(set.intersection(*map(set, rows)))) if rows else ""
    wanted = given or f"{usual[0]}, nor another usual name of it,"
    raise UserError(f"--data has no column {wanted} in each row. It has {there or 'none'}. Name one with {flag}.")


def _rows(name: str) -> list[dict]:
    """The first rows of the set that a run would read under this name, with the run's own values."""
    path = training_set(name, Path("data"))
    if not path.is_file():
        known = name in TRAINING_ROWS or is_hub_id(name)
        write = f"`real-openrlhf data {name} --out FILE.jsonl` writes one." if known else "Check its name."
        raise UserError(f"--data {name}: there is no file {path}. {write}")
    if path.suffix not in CHECKED:
        raise UserError(
            f"--data {name}: OpenRLHF knows a format by its ending. Name a file with {', '.join(CHECKED)}."
        )
    return [*islice(rows_of(path, set()), ROWS)]


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

    def __init__(self, file: Path, rows: Sequence[tuple[str, Any]]) -> None:
        self.file, self.rows = file, rows
        self.seen: set[float] = set()  # scores
        self.rewards: dict[bool, list[float]] = {True: [], False: []}  # of right answers, of wrong ones
        self.first: list[float] = []  # of the expected answers in their best form

    def problems(self) -> Iterator[str]:
        """A fault that makes the rest meaningless ends the trial."""
        if wrong := reward_file_problem(self.file):
            yield f"it {wrong}"
            return
        try:
            self.calls = RewardCalls(reward_function(self.file))
            self.calls.seconds = min(SECONDS, self.calls.limit)
            for check in (self.junk, self.expected, self.repeated, self.rewarded):
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
            where = "in a box, in a sentence, alone or behind ####"
            yield f"it calls {count - right} of {count} expected answers wrong, {where}{self.hint()}"
        if (silent := sum(map(math.isnan, self.first)) / count) > 0.2:
            yield f"no verdict on {silent:.0%} of them: these would not train"
        others = [label for _, label in (*self.rows[1:], self.rows[0])]
        asked = zip(self.answered(self.form), others, strict=True)
        swapped = [(prompt, text, other) for (prompt, text, own), other in asked if other != own]
        fooled = sum(score > RIGHT for score in self.scores(swapped, "another label"))
        if fooled > len(swapped) / 2:
            yield f"it does not read the label: {fooled} of {len(swapped)} answers are right for another question too"

    def hint(self) -> str:
        """What is unusual about the labels."""
        for _, label in self.rows:
            if raw := raw_label(label):
                return f" ({raw})"
            if not isinstance(label, str):
                return f" (a run passes labels as the data has them, such as {label!r}, no text: read these)"
        return ""

    def repeated(self) -> Iterator[str]:
        for how, at_once in (("called again", 1), (f"in {AT_ONCE} threads at once", AT_ONCE)):
            after = self.scores(self.answered(self.form), how, at_once)
            count = sum(str(one) != str(other) for one, other in zip(self.first, after, strict=True))  # nan is nan
            if count:
                yield f"it scores {count} of {len(after)} answers differently {how}: no run could be repeated"
        if not self.seen <= {0.0, 1.0} and not self.threshold():
            yield f"{self.scale()}: no threshold divides those of right and wrong answers. Return other `scores`"

    def rewarded(self) -> Iterator[str]:
        """Labels come from `scores`, and advantages from `rewards`."""
        right, wrong = self.rewards[True], self.rewards[False]
        if right and wrong and fmean(right) <= fmean(wrong):
            same = {*right, *wrong}
            they = (
                f"are all {same.pop():g}" if len(same) == 1 else "are no higher for right answers than for wrong ones"
            )
            yield f"its rewards {they}, and methods such as grpo train on these. Return the scores there too"

    def scale(self) -> str:
        """REAL's labels are 0 and 1: a run with other scores stops after its first rollouts, without a flag."""
        known = [f"{score:g}" for score in sorted(self.seen)]
        said = f"its scores are {', '.join(known[:8])}{' ...' * (len(known) > 8)}"
        if not (flag := " ".join(self.threshold())):
            return said
        return f"{said}: REAL needs {flag}; objectives of graded rewards read them as they are"

    def threshold(self) -> list[str]:
        """The flag that reads scores other than 0 and 1, with a number between those of wrong and right answers."""
        right = [score for score in self.first if score > RIGHT]
        if self.seen <= {0.0, 1.0} or not right:
            return []
        wrong = max((score for score in self.seen if score <= RIGHT), default=0.0)
        return ["--algo.real.label_threshold", f"{(wrong + min(right)) / 2:g}"]

    def answered(self, form: str) -> list[tuple[str, str, Any]]:
        return [(prompt, form % answer_of(label), label) for prompt, label in self.rows]

    def scores(self, asked: Sequence[tuple[str, str, Any]], what: str, at_once: int = 1) -> list[float]:
        """Scores of (prompt, response, label) triples; each call is made as in a run."""

        async def all_of_them() -> list[float]:
            limit = asyncio.Semaphore(at_once)

            async def one(prompt: str, response: str, label: Any) -> float:
                async with limit:
                    found = await self.calls.asked(prompt + response, prompt, label)
                if not math.isnan(found["scores"]):
                    self.rewards[found["scores"] > RIGHT].append(found["rewards"])
                return found["scores"]

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


def _text(prompt: Any) -> str:
    """A chat's last message, or the text itself."""
    return str(prompt[-1]["content"]) if isinstance(prompt, list) else str(prompt)
