"""What a grader of mathematics gets wrong, in a minute and without a network, as a Markdown table.

    python -m same_answer.audit my_rewards:grade               a function of a module that is here or installed
    python -m same_answer.audit my_rewards:grade installed     beside same_answer, math-verify, OpenRLHF, verl and TRL

The function takes a response or a bare answer, and a gold, in either order, or what rewards for TRL, verl and OpenRLHF
take: the first way in which it grades four easy questions is used and named. It returns a number, a list or tuple that
begins with one, or a dict with `score`, `acc` or `rewards`; None and nan are ungraded. It runs in an empty folder.
"""

import argparse
import asyncio
import ctypes
import importlib
import inspect
import json
import math
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from same_answer.audit_inputs import EASY, Question, questions
from same_answer.extract import boxed_answer

CALLS = ("f(response, gold)", "f(answer, gold)", "f(gold, response)", "f(gold, answer)", "f('math', response, gold)",
         "f([response], [gold])", "f([[{'role': 'assistant', 'content': response}]], ['$' + gold + '$'])",
         "f(['Solve: ' + response], ['Solve: '], [gold])")  # fmt: skip
KNOWN = {  # name: (module:function, how it is called)
    "same_answer": ("same_answer:verify", CALLS[0]),
    "math-verify": ("math_verify:verify", r"verify(parse('\\boxed{' + gold + '}'), parse(response))"),
    "OpenRLHF": ("openrlhf.utils.math_utils:grade_answer", CALLS[1]),
    "verl": ("verl.utils.reward_score.math_verify:compute_score", CALLS[0]),
    "verl-prime": ("verl.utils.reward_score.prime_math:compute_score", CALLS[0]),
    "TRL": ("trl.rewards.accuracy_rewards:accuracy_reward", CALLS[6]),
}
OF_GOLD = "gold", "truth", "label", "reference", "expected"  # a first parameter with such a name takes the gold
DRIVE = "import json, sys; sys.path[:0] = json.loads(sys.argv[1]); from same_answer.audit import drive; "
CAP, START = 5.0, 120.0  # seconds of an answer; of an import, and then of an easy question


def load(target: str) -> tuple[Callable, dict]:
    """In the grader's process: the function, and the names beside it. Raises ValueError, which says what to type."""
    module, _, name = target.partition(":")
    try:
        names = vars(importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name and not f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"{module} needs {error.name}, which is not installed") from None
        raise ValueError(f"no module {module!r}. Give MODULE:FUNCTION, in the folder of MODULE.py") from None
    if not callable(names.get(name)):
        functions = ", ".join(key for key, value in names.items() if inspect.isfunction(value))
        raise ValueError(
            f"no function {name!r} in {module}. Give {module}:FUNCTION, of {functions or 'another module'}"
        )
    return names[name], names


def number(result: object) -> float:
    """A grader's result as a number; nan where it does not decide."""
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    if isinstance(result, dict):
        result = next((result[key] for key in ("score", "scores", "acc", "rewards") if key in result), None)
    while isinstance(result, (list, tuple)) or getattr(result, "shape", False):
        result = result[0]  # type: ignore[index]
    return math.nan if result is None else float(result)  # type: ignore[arg-type]


def drive(target: str, place: str) -> None:
    """Questions on standard input, results on what was standard output; the first says whether the grader is there."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: one that hangs dies with the audit

    def answer(line: str) -> None:
        question = json.loads(line)
        try:
            reply: dict[str, object] = {"score": number(eval(question["call"], {**names, "f": function}, question))}
        except BaseException as error:
            reply = {"raised": f"{type(error).__name__}: {error}"[:100]}
        replies.write(json.dumps(reply) + "\n")

    try:
        function, names = load(target)
        parameters = inspect.signature(function).parameters if inspect.isfunction(function) else {}
        hello = {"first": next(iter(parameters), "")}
    except Exception as error:
        hello = {"error": f"{target}: {type(error).__name__}: {error}".replace(f"{target}: ValueError: ", "")}
    replies.write(json.dumps(hello) + "\n")
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 4 << 30))
    pool = ThreadPoolExecutor(1)
    for line in sys.stdin:
        answer(line) if place == "main" else pool.submit(answer, line).result()
    os._exit(0)


class Process:
    """A grader in a process of its own, in an empty folder."""

    def __init__(self, target: str, place: str = "main", call: str = ""):
        self.folder, self.seconds = tempfile.TemporaryDirectory(ignore_cleanup_errors=True), START
        paths = json.dumps([os.path.abspath(folder) for folder in ("", *sys.path)])
        words = [sys.executable, "-c", DRIVE + "drive(*sys.argv[2:])", paths, target, place]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
        self.process = subprocess.Popen(words, cwd=self.folder.name, start_new_session=True, **pipes)  # type: ignore
        self.hello = self.read()
        if call:
            self.ask(EASY[0], call)  # may start what the next ones need

    def read(self) -> dict:
        if not select.select([self.process.stdout], [], [], self.seconds)[0]:
            return {"failed": "hung"}
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"failed": "died"}

    def ask(self, question: Question, call: str) -> dict:
        texts = {"call": call, **question._asdict()}
        texts["response"] = question.response or f"The answer is \\boxed{{{question.answer}}}."
        try:
            self.process.stdin.write(json.dumps(texts).encode() + b"\n")
        except OSError:
            return {"failed": "died"}
        reply, self.seconds = self.read(), CAP
        if (mark := Path(self.folder.name, "ran")).exists():
            mark.rmdir() if mark.is_dir() else mark.unlink()
            return {"failed": "executed"}
        return reply

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self.folder.cleanup()


class Grader:
    """How a grader is called, and above which number it says that an answer is correct."""

    def __init__(self, name: str):
        self.name, (self.target, call) = name, KNOWN.get(name, (name, ""))
        process, tried = Process(self.target), []
        try:
            if error := process.hello.get("error") or process.hello.get("failed"):
                raise ValueError(error if "error" in process.hello else f"{name} {error} while it was imported")
            gold_first = any(word in process.hello["first"] for word in OF_GOLD)
            for self.call in [call] if call else sorted(CALLS, key=lambda one: gold_first and "f(gold" not in one):
                replies = [process.ask(question, self.call) for question in EASY]
                scores = [reply.get("score", math.nan) for reply in replies]
                self.least = (min(scores[::2]) + max(scores[1::2])) / 2
                if min(scores[::2]) > self.least > max(scores[1::2]):
                    return
                tried.append(f"{self.call}: {replies[0].get('raised') or scores}")
                if any("failed" in reply for reply in replies):
                    process.close()
                    process = Process(self.target)
        finally:
            process.close()
        why = f"{name} does not grade 2 for 2 and 12 for 12 above 3 for 2 and 21 for 12. Write a function of"
        raise ValueError("\n  ".join([f"{why} (response, gold) that calls it. Tried:", *tried]))

    def outcome(self, process: Process, question: Question) -> str:
        reply = process.ask(question, self.call)
        if "score" not in reply:
            return reply.get("failed") or "raised"
        if question.kind == "hard" and self.outcome(process, EASY[0]) != "yes":
            return "broken"
        return "ungraded" if math.isnan(reply["score"]) else "yes" if reply["score"] > self.least else "no"

    def answers(self, asked: list[Question], place: str, end: float) -> list[tuple[Question, str]]:
        """What it says to each question until time is up. A process that failed is replaced."""
        process, outcomes = Process(self.target, place, self.call), list[tuple[Question, str]]()
        while len(outcomes) < len(asked) and time.monotonic() < end:
            if outcomes and outcomes[-1][1] in FAILED:
                process.close()
                process = Process(self.target, place, self.call)
            outcomes.append((question := asked[len(outcomes)], self.outcome(process, question)))
        process.close()
        return outcomes


FAILED, PAIRS = ("hung", "died", "broken"), ("missed", "accepted")
LANES = (PAIRS, "main"), (["hard"], "main"), (["executed", "unreadable"], "main"), (["thread"], "thread")
COLUMNS: dict[str, tuple[Sequence[str], Callable[[Question, str], bool]]] = {  # heading: (kinds, what counts)
    "respelled, missed": (["missed"], lambda _, outcome: outcome == "no"),
    "near misses, accepted": (["accepted"], lambda _, outcome: outcome == "yes"),
    "of both, ungraded or raised": (PAIRS, lambda _, outcome: outcome not in ("yes", "no")),
    f"hard, over {CAP:.0f} s or broken": (["hard"], lambda _, outcome: outcome in FAILED),
    "Python, executed": (["executed"], lambda _, outcome: outcome == "executed"),
    "in a thread, wrong": (["thread"], lambda asked, outcome: outcome != ("no", "yes")[asked.answer == asked.gold]),
    "unreadable gold, 0": (["unreadable"], lambda _, outcome: outcome == "no"),
}


def of_file(file: Path) -> Iterator[Question]:
    for row in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        response = row.get("response") or f"The answer is \\boxed{{{row['answer']}}}."
        answer = boxed_answer(response) or ""
        yield Question("missed" if row["equal"] else "accepted", "pair", answer, row["gold"], response)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m same_answer.audit", description=__doc__, formatter_class=raw)
    parser.add_argument("graders", nargs="+", metavar="GRADER", help=f"MODULE:FUNCTION, installed, {', '.join(KNOWN)}")
    parser.add_argument("--pairs", type=Path, metavar="FILE.jsonl", help="your own: gold, answer or response, equal")
    parser.add_argument("--errors", action="store_true", help="below the table, what each grader got wrong")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each grader; default: 60")
    args = parser.parse_args()
    there = [name for name, (target, _) in KNOWN.items() if find_spec(target.split(":")[0].split(".")[0])]
    names = [one for name in args.graders for one in (there if name == "installed" else [name])]
    try:
        asked = [*of_file(args.pairs)] if args.pairs else questions()
        graders = [Grader(name) for name in dict.fromkeys(names)]
    except (OSError, ValueError, KeyError) as error:
        row = f"a row of {args.pairs} has no {error}"
        parser.exit(2, f"same_answer.audit: error: {row if isinstance(error, KeyError) else error}\n")
    headings, notes = [*COLUMNS][: 3 if args.pairs else None], []
    print("|grader|" + "|".join(headings) + "|\n|---|" + "---:|" * len(headings))
    for grader in graders:
        lanes = [([question for question in asked if question.kind in kinds], place) for kinds, place in LANES]
        with ThreadPoolExecutor() as pool:
            jobs = [pool.submit(grader.answers, *lane, time.monotonic() + args.seconds) for lane in lanes]
        outcomes, cells = [one for job in jobs for one in job.result()], [grader.name]
        notes.append(f"{grader.name}: called as {grader.call}; asked {len(outcomes)} of {len(asked)}")
        for kinds, counts in map(COLUMNS.__getitem__, headings):
            of_kind = [one for one in outcomes if one[0].kind in kinds]
            wrong = [one for one in of_kind if counts(*one)]
            cells.append(f"{len(wrong)} of {len(of_kind)}")
            for question, outcome in wrong if args.errors else ():
                texts = f"{question.answer[:80]!r} for {question.gold[:80]!r}"
                notes.append(f"  {question.kind} ({question.name}): {texts}: {outcome}")
        print("|" + "|".join(cells) + "|", flush=True)
    print("", *notes, sep="\n")


if __name__ == "__main__":
    main()
