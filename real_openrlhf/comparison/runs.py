"""A comparison's runs on disk: words and folder of each, which process has it, and whether it has other inputs."""

import argparse
import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base import files
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import Parser, flag_name, words_of
from real_openrlhf.base.run_files import EVALUATION, RECORD
from real_openrlhf.comparison.entries import Entry, entries, once_each
from real_openrlhf.evaluation import command as eval_command
from real_openrlhf.evaluation import grading
from real_openrlhf.recipes.run import PLACES
from real_openrlhf.runs import run_folder, run_record
from real_openrlhf.training import command as train_command
from real_openrlhf.training.request import Request

SET_HERE = {"--algo", "--seed", "--train.seed", "--run-name", "--runs-dir", "--resume", "--dry-run", *PLACES}
ASKED = "asked.json"  # in a run's eval/: the words of the evaluation that reached its end


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
        also = {"--max-steps", "--train.max_steps"} & {word.partition("=")[0] for word in args.openrlhf}
        if args.steps and also:
            raise UserError(f"--steps and {min(also)} are one setting. Leave one of them out.")
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

    def record(self, entry: Entry) -> dict:
        """Of the run; of one that is just starting in another process its flags; {} of none."""
        path, lock = self.path(entry), self.out / "locks" / entry.name
        if (path / RECORD).exists():
            return run_folder.state(path)
        if lock.exists() and files.lock_held(lock):
            with contextlib.suppress(ValueError):  # it is taken, and its flags follow at once
                return json.loads(lock.read_text())
        return {}

    def is_finished(self, entry: Entry) -> bool:
        return self.record(entry).get("status") == "finished"

    def is_done(self, entry: Entry) -> bool:
        asked, words = self.path(entry) / EVALUATION / ASKED, {"words": [*self.evaluation]}
        evaluated = not self.evaluation or (asked.exists() and json.loads(asked.read_bytes()) == words)
        return evaluated and self.is_finished(entry)

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
            if record := self.record(entry):
                refuse_other_inputs(self.path(entry), record, self.request(entry))

    def written(self, entry: Entry) -> bytes:
        record = self.path(entry) / RECORD
        return record.read_bytes() if record.exists() else b""


def eval_args(words: Sequence[str]) -> argparse.Namespace:
    parser = Parser("real-openrlhf compare: --eval-flags")
    eval_command.configure(parser)
    return parser.parse_args([*words])


def refuse_other_inputs(path: Path, record: dict, request: Request) -> None:
    run = request.run
    if other := run_record.changed_flags(record, run):
        differences = "; ".join(f"{flag} {old}, not {new}" for flag, (old, new) in other.items())
        raise UserError(f"{path} was made with {differences}. Choose another --out.")
    for changed in run_record.changed_files(record, run).values():
        raise UserError(f"{path} was made with {changed}. Put the file back as it was, or choose another --out.")
