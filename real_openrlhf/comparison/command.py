"""`real-openrlhf compare`: methods x seeds of one recipe, their evaluation, and the report on all of them.

A run is `real-openrlhf train` in OUT/runs/NAME. A finished run is not run again, and one that another process has
locked is left to it. So the same command continues what was killed, and in several shells it shares the runs; a shell
ends when no run is free.
"""

import argparse
import contextlib
import html
import itertools
import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from real_openrlhf.base import files, ownership
from real_openrlhf.base.errors import UserError, exit_code
from real_openrlhf.base.files import parsed, write_json
from real_openrlhf.base.parsing import (
    Parser,
    PassThrough,
    did_you_mean,
    flag_name,
    path_of,
    positive,
    whole,
    words_of,
)
from real_openrlhf.base.run_files import EVALUATION, MODEL, RECORD
from real_openrlhf.base.secrets import hide
from real_openrlhf.base.user_files import example_of
from real_openrlhf.evaluation import command as eval_command
from real_openrlhf.evaluation import grading
from real_openrlhf.forecast.duration import Bill, in_all
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.run import OBJECTIVE, PLACES
from real_openrlhf.runs import run_folder, run_record
from real_openrlhf.training import command as train_command
from real_openrlhf.training.checks import Findings, run_checks
from real_openrlhf.training.progress import end_unwatched
from real_openrlhf.training.request import Request
from real_openrlhf.training.start import Start


class WithGrid(PassThrough):
    """Takes the flag of a grid with its dashes too, by which argparse would end the option."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = [*(args or ())]
        after_grid = zip(words, ["", *words], strict=False)
        return super().parse_known_args(
            [w.removeprefix("--") if b == "--grid" else w for w, b in after_grid], namespace
        )


PARSER = WithGrid
DEFAULT_ALGOS = ("real", "real_fixed_weights", "grpo", "dapo", "gspo")
OWN = re.compile(r".+\.py:\w+")  # an objective of the user's own
SET_HERE = {"--algo", "--seed", "--train.seed", "--run-name", "--runs-dir", "--resume", "--dry-run", *PLACES}
ASKED = "asked.json"  # in a run's eval/: the words of the evaluation that reached its end


@dataclass(frozen=True)
class Entry:
    """One run of the comparison: an algorithm with its own flags, and a seed."""

    algo: str
    flags: tuple[str, ...]
    seed: int

    @property
    def name(self) -> str:
        """`real --algo.real.tau 0.1` with seed 2 -> real-tau-0.1-s2; files of this folder have one name."""
        words = (word.removeprefix(f"{Path.cwd()}/").removeprefix("./") for word in self.flags)
        words = (re.sub(r"^--(?:.*\.)?", "", word) for word in words)
        return "-".join([self.algo, *(re.sub(r"[^\w.+=-]+", "_", word) for word in words), f"s{self.seed}"])

    def without(self, flags: Sequence[str]) -> "Entry":
        """Of the grid's flags, each with its one value at the end."""
        pairs = zip(self.flags, self.flags[1:], strict=False)
        gone = {place + step for place, (word, _) in enumerate(pairs) if word in flags for step in (0, 1)}
        return replace(self, flags=tuple(word for place, word in enumerate(self.flags) if place not in gone))


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [--recipe NAME] [--algos NAME ...] [OpenRLHF flags]"
    methods = "algorithms or FILE.py:NAME, with flags of their own in quotes: 'real --algo.real.tau 0.1'"
    grid = "run every algorithm at each value: --grid actor.adam.lr 1e-4 1e-3"
    benchmarks = "evaluate each trained model on these, as `eval --benchmarks`"
    add, default = parser.add_argument, " (default: %(default)s)"
    add("--recipe", choices=RECIPES, metavar="NAME", help="as of `train` (default: that of --config, or cpu)")
    add(
        "--algos",
        nargs="+",
        default=DEFAULT_ALGOS,
        metavar="NAME",
        help=f"{methods} (default: {' '.join(DEFAULT_ALGOS)})",
    )
    add("--seeds", type=positive, default=3, metavar="N", help="seeds of each algorithm" + default)
    add("--first-seed", type=whole, default=1, metavar="N", help="the first seed" + default)
    add("--grid", nargs="+", action="append", default=[], metavar=("FLAG", "VALUE"), help=grid)
    add("--steps", type=positive, metavar="N", help="rollout steps (default: the recipe's)")
    add("--benchmarks", default="none", metavar="NAMES", help=benchmarks + default)
    add("--eval-flags", default="", metavar="WORDS", help="other words of `eval`, in quotes: '--k 4'")
    add("--out", type=path_of, default=Path("comparison"), metavar="DIR", help="runs and report" + default)
    add("--dry-run", action="store_true", help="list and check all runs, start nothing")


def entries(algos: Iterable[str], seeds: int, first_seed: int = 1, grid: Sequence[Sequence[str]] = ()) -> list[Entry]:
    """All runs, seed by seed: a comparison that ends early has every algorithm in every cell of the grid."""
    methods = [words for text in algos if (words := tuple(words_of("--algos", text)))]
    methods = [("real", OBJECTIVE, *words) if OWN.fullmatch(words[0]) else words for words in methods]
    if not methods or any(len(values) < 2 or not values[0] for values in grid):
        raise UserError("--algos or --grid is empty. Type --algos real, or --grid actor.adam.lr 1e-4 1e-3.")
    if any(hide(words) != [*words] for words in (*methods, *grid)):
        raise UserError("--algos and --grid make the runs' names, and a secret is in them. Give its flag apart.")
    for algo, *_ in methods:
        if algo not in ALGORITHMS:
            near = example_of(algo) or did_you_mean(algo, ALGORITHMS)
            raise UserError(f"--algos {algo}: unknown. {near}Name one of {', '.join(ALGORITHMS)}, or FILE.py:NAME.")
    cells = [*itertools.product(*([(flag_name(flag), value) for value in values] for flag, *values in grid))]
    runs = [
        Entry(algo, (*flags, *itertools.chain(*cell)), seed)
        for seed in range(first_seed, first_seed + seeds)
        for cell in cells
        for algo, *flags in methods
    ]
    if twice := [name for name, count in Counter(entry.name for entry in runs).items() if count > 1]:
        raise UserError(f"--algos or --grid names {twice[0]} twice. Remove one, or spell it otherwise: 0.10 for 0.1.")
    return runs


def once_each(every: Sequence[Entry], common: Sequence[str], grid: Sequence[str]) -> list[Entry]:
    """The runs without the grid's flags that they do not read: a method is trained once, not at each value."""
    unread: dict[tuple, list[str]] = {}
    for entry in every if grid else ():
        key = entry.algo, entry.flags
        if key not in unread:
            run = train_command.request_of(["--algo", entry.algo, *common, *entry.flags]).run
            unread[key] = [flag for flag in grid if flag in run.unread]
    if nobodys := [flag for flag in grid if all(flag in flags for flags in unread.values())]:
        raise UserError(f"--grid {nobodys[0]}: none of these methods reads it. Leave it out.")
    return [*dict.fromkeys(entry.without(unread.get((entry.algo, entry.flags), ())) for entry in every)]


@dataclass(frozen=True)
class Runs:
    """The runs of a comparison and the words that they share; `evaluation` are words of `eval`, if there is one."""

    entries: list[Entry]
    common: tuple[str, ...]
    out: Path
    evaluation: tuple[str, ...]

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> "Runs":
        every = entries(args.algos, args.seeds, args.first_seed, args.grid)
        typed = [*args.openrlhf, *(word for entry in every for word in entry.flags)]
        for flag in (re.sub("^--no-", "--", word.partition("=")[0]) for word in typed):
            if flag in SET_HERE:
                raise UserError(f"{flag} is set for each run. Use --algos, --seeds, --first-seed, --out or --dry-run.")
        given = {"--recipe": args.recipe, "--max-steps": args.steps}
        common = [word for flag, value in given.items() if value for word in (flag, str(value))]
        evaluation: list[str] = []
        if args.benchmarks != "none":
            evaluation = [*words_of("--eval-flags", args.eval_flags), "--benchmarks", args.benchmarks]
            grading.refuse(eval_args(evaluation))
        elif args.eval_flags:
            raise UserError("--eval-flags: nothing is evaluated. Give --benchmarks too, or leave it out.")
        every = once_each(every, (*common, *args.openrlhf), [flag_name(flag) for flag, *_ in args.grid])
        return cls(every, (*common, *args.openrlhf), args.out, tuple(evaluation))

    @property
    def folder(self) -> Path:
        return (self.out / "runs").resolve()

    def path(self, entry: Entry) -> Path:
        return self.folder / entry.name

    def words(self, entry: Entry) -> list[str]:
        run = ["--algo", entry.algo, "--seed", str(entry.seed), "--run-name", entry.name, "--resume"]
        return [*run, *self.common, "--runs-dir", str(self.folder), *entry.flags]

    def request(self, entry: Entry, *more: str) -> Request:
        return train_command.request_of([*self.words(entry), *more])

    def is_finished(self, entry: Entry) -> bool:
        path = self.path(entry)
        return (path / RECORD).exists() and run_folder.state(path)["status"] == "finished"

    def is_done(self, entry: Entry) -> bool:
        asked, words = self.path(entry) / EVALUATION / ASKED, {"words": [*self.evaluation]}
        evaluated = not self.evaluation or (asked.exists() and parsed(asked.read_bytes()) == words)
        return self.is_finished(entry) and evaluated

    @contextlib.contextmanager
    def taken(self, entry: Entry) -> Iterator[bool]:
        """Keep other processes from the run, and tell them its flags; False if one of them has it."""
        (self.out / "locks").mkdir(parents=True, exist_ok=True)
        with open(self.out / "locks" / entry.name, "a") as lock:
            ours = files.lock_taken(lock) and not run_folder.is_running(self.path(entry))
            if ours:
                lock.truncate(0)
                json.dump({"flags": run_record.recorded_flags(self.request(entry).run)}, lock)
                lock.flush()
            yield ours

    def refuse_other_inputs(self, entries: Iterable[Entry]) -> None:
        """Runs of another comparison would stand in this one's tables; some may just be starting there."""
        for entry in entries:
            path, lock = self.path(entry), self.out / "locks" / entry.name
            if (path / RECORD).exists():
                refuse_other_inputs(path, run_folder.read(path), self.request(entry))
            elif lock.exists() and files.lock_held(lock):
                with contextlib.suppress(ValueError):  # it is taken, and its flags follow at once
                    refuse_other_inputs(path, parsed(lock.read_text()), self.request(entry))

    def written(self, entry: Entry) -> bytes:
        record = self.path(entry) / RECORD
        return record.read_bytes() if record.exists() else b""


def eval_args(words: Sequence[str]) -> argparse.Namespace:
    parser = Parser("real-openrlhf compare: --eval-flags")
    eval_command.configure(parser)
    return parser.parse_args([*words])


def run(args: argparse.Namespace) -> int:
    from real_openrlhf.report import page  # matplotlib takes a second

    runs = Runs.from_args(args)
    ownership.refuse_foreign("--out", [runs.out], runs.out.is_dir())
    page.refuse_foreign(runs.out / "report")
    runs.refuse_other_inputs(runs.entries)
    todo = [entry for entry in runs.entries if not runs.is_done(entry)]
    notes = check(runs, todo, args.dry_run)
    print(f"{len(runs.entries)} runs, {len(runs.entries) - len(todo)} finished: {runs.folder}")
    if args.dry_run:
        print("".join(f"note: {note}\n" for note in notes), end="")
        print("\n".join(f"  {entry.name}  {shlex.join(['--algo', entry.algo, *entry.flags])}" for entry in todo))
        print(f"Flags of all runs OK. Evaluation: {shlex.join(runs.evaluation) or 'none'}")
        return 0
    code = work(runs, todo)
    report(runs.out)
    if missing := [entry.name for entry in todo if not runs.is_done(entry)]:
        print(f"missing: {', '.join(missing)}. Run the same command again", file=sys.stderr)
    return code


def refuse_other_inputs(path: Path, record: dict, request: Request) -> None:
    run = request.run
    if other := run_record.changed_flags(record, run):
        differences = "; ".join(f"{flag} {old}, not {new}" for flag, (old, new) in other.items())
        raise UserError(f"{path} was made with {differences}. Choose another --out.")
    for changed in run_record.changed_files(record, run).values():
        raise UserError(f"{path} was made with {changed}. Put the file back as it was, or choose another --out.")


def check(runs: Runs, todo: Sequence[Entry], dry_run: bool) -> list[str]:
    """Check the first seed of each method. Raise all problems, each once with the first run that has it; or return
    the notes, and what all runs cost."""
    problems: dict[str, str] = {}
    notes: dict[str, str] = {}
    bills: list[Bill] = []
    methods = Counter((entry.algo, entry.flags) for entry in todo)
    for method, entry in reversed({(entry.algo, entry.flags): entry for entry in reversed(todo)}.items()):
        found = Findings()
        try:
            request = runs.request(entry, *["--dry-run"] * dry_run)
            found = run_checks.findings(Start.of(request))
            if not found.problems and runs.evaluation and request.run.args.ds.lora.rank:
                found.problems = ["`eval` cannot load the adapter that a LoRA run saves. Give --benchmarks none."]
        except UserError as error:
            found.problems = error.problems
        for text in (*found.problems, *found.notes):
            (notes if text in found.notes else problems).setdefault(text, entry.name)
        bills += [bill for note in found.notes if (bill := getattr(note, "bill", None))] * methods[method]
    if problems:
        raise UserError(*(f"{name}: {problem}" for problem, name in problems.items()))
    return [
        *(f"{name}: {note}".replace("--runs-dir", "--out") for note, name in notes.items()),
        *([in_all(bills)] if bills else []),
    ]


def work(runs: Runs, todo: Sequence[Entry]) -> int:
    """Train and evaluate what no other process has, each run once; the exit code of the last failure."""
    before, last = {entry: runs.written(entry) for entry in todo}, 0
    for number, entry in enumerate(todo, 1):
        with runs.taken(entry) as ours:
            runs.refuse_other_inputs(todo)
            if not ours or runs.is_done(entry) or runs.written(entry) != before[entry]:
                continue  # another process trains it, or has ended it since this one began
            print(f"\n--- {entry.name}, {number} of {len(todo)} runs", flush=True)
            code = train_and_evaluate(runs, entry)
        if code in train_command.SIGNALS:
            return code
        last = code or last
    return last


def train_and_evaluate(runs: Runs, entry: Entry) -> int:
    path, code = runs.path(entry), 0
    if (path / RECORD).exists() and (unseen := end_unwatched(path)):
        print(unseen)
    if not runs.is_finished(entry):
        request = train_command.parse(runs.words(entry))
        code = exit_code("train", lambda: train_command.run(request))
    if not code and runs.evaluation:
        words = ["--model", str(path / MODEL), "--name", path.name, "--out", str(path / EVALUATION)]
        evaluation = eval_args([*runs.evaluation, *words])
        code = exit_code("eval", lambda: eval_command.run(evaluation))
        if not code:
            write_json(path / EVALUATION / ASKED, {"words": [*runs.evaluation]})
    return code


def report(out: Path) -> None:
    from real_openrlhf.report.page import write
    from real_openrlhf.report.read_runs import read_runs

    runs, skipped = read_runs(sorted((out / "runs").glob("*")))
    for path, reason in skipped:
        print(f"skipped {path}: {reason}")
    if runs:
        page = write(runs, skipped, out / "report")
        for table in sorted((out / "report" / "tables").glob("*summary.md")):
            print(f"\n{html.unescape(table.read_text(encoding='utf-8'))}")
        print(f"report: {page}")
