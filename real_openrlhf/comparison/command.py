"""`real-openrlhf compare`: algorithms x seeds on the CPU stack, then the report; what is finished is not run again.

All runs share one session (session.py), so that Ray and the vLLM engine start once and not once a run.
"""

import argparse
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf import cli
from real_openrlhf.errors import UserError
from real_openrlhf.files import write_json
from real_openrlhf.parsing import PassThrough, positive
from real_openrlhf.training import command as train_command
from real_openrlhf.training import run_folder, run_inputs, shared_ray, tiny_task
from real_openrlhf.training.place import Place
from real_openrlhf.training.progress import duration
from real_openrlhf.training.recipes import ALGORITHMS, RECIPES

RECIPE = "cpu"
DEFAULT_ALGOS = ("real", "real_constant", "grpo", "dapo", "gspo")
INTERRUPTED = (129, 130, 143)
REFUSED = 2
DIGITS = 6  # significant ones of a number in a published run


@dataclass(frozen=True)
class Entry:
    """One run of the comparison: an algorithm with its own flags, and a seed."""

    algo: str
    flags: tuple[str, ...]
    seed: int

    @property
    def name(self) -> str:
        """`real --algo.real.tau 0.1` with seed 2 -> real-tau-0.1-s2"""
        words = (re.sub(r"^--(?:.*\.)?", "", word) for word in self.flags)
        return "-".join([self.algo, *(re.sub(r"[^\w.+=-]+", "_", word) for word in words), f"s{self.seed}"])


def entries(algos: Iterable[str], seeds: int) -> list[Entry]:
    """Seed by seed: whoever stops early has every algorithm."""
    asked = [tuple(shlex.split(text)) for text in algos]
    for algo, *_ in asked:
        if algo not in ALGORITHMS:
            raise UserError(f"--algos {algo}: not an algorithm. These are: {', '.join(ALGORITHMS)}.")
    made = [Entry(algo, tuple(flags), seed) for seed in range(1, seeds + 1) for algo, *flags in asked]
    if len({entry.name for entry in made}) < len(made):
        raise UserError("--algos names the same thing twice.")
    return made


def configure(parser: argparse.ArgumentParser) -> None:
    parser.__class__ = PassThrough
    parser.allow_abbrev = False
    parser.usage = "%(prog)s [--algos NAME ...] [--seeds N] [--steps N] [--out DIR] [any OpenRLHF flag]"
    parser.add_argument(
        "--algos",
        nargs="+",
        default=DEFAULT_ALGOS,
        metavar="NAME",
        help=f"with flags of its own in quotes: 'real --algo.real.tau 0.1' (default: {' '.join(DEFAULT_ALGOS)})",
    )
    parser.add_argument("--seeds", type=positive, default=3, metavar="N", help="seeds 1 to N (default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=40, metavar="N", help="rollout steps (default: %(default)s)")
    parser.add_argument(
        "--skill",
        type=float,
        metavar="P",
        help=f"pass rate to start from; lower is harder (default: {tiny_task.TinyConfig.skill})",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("comparison"), metavar="DIR", help="runs and report (%(default)s)"
    )
    parser.add_argument(
        "--publish",
        type=Path,
        metavar="DIR",
        help="also a copy that is small enough to commit: no weights, no logs, no paths of this machine",
    )


def run(args: argparse.Namespace) -> int:
    from real_openrlhf.report.command import write
    from real_openrlhf.report.read_runs import read_runs

    wanted = entries(args.algos, args.seeds)
    folder = (args.out / "runs").resolve()
    common = [*_task(args.skill), "--max-steps", str(args.steps), "--runs-dir", str(folder), *args.openrlhf]
    todo = [entry for entry in wanted if not finished(folder / entry.name, args.steps)]
    for entry in wanted:
        if (folder / entry.name).exists():
            refuse_other_flags(folder / entry.name, request_of(_words(entry, common)))
    print(f"{len(wanted)} runs of {args.steps} steps, {len(wanted) - len(todo)} already finished: {folder}")
    failed = _train(todo, common, args.out.resolve(), len(wanted)) if todo else []
    if failed and failed[-1][1] == REFUSED:  # and has said why
        return REFUSED
    found, skipped = read_runs(sorted(folder.glob("*")))  # earlier comparisons in this place too
    if found:
        print(f"report: {write(found, skipped, args.out / 'report')}")
        if args.publish:
            publish([run.path for run in found], args.publish)
            print(f"published: {args.publish}")
    for entry, code in failed:
        print(f"{entry.name} ended with exit code {code}: {folder / entry.name / 'train.log'}", file=sys.stderr)
    if failed:
        print("the same command goes on with what is missing", file=sys.stderr)
        return failed[-1][1]
    return 0


def _task(skill: float | None) -> list[str]:
    if skill is None:
        return []
    folder = tiny_task.prepare(tiny_task.TinyConfig(skill=skill))
    return [
        *("--model", str(folder / "model"), "--data", str(folder / "train.jsonl")),
        *(run_inputs.VALIDATION, str(folder / "eval.jsonl")),
    ]


def finished(path: Path, steps: int) -> bool:
    if not path.exists():
        return False
    record = run_folder.read(path)
    made = record["flags"].get("--train.max_steps")
    if made != steps:
        raise UserError(f"{path} is a run of {made} steps, not of {steps}. Choose another --out.")
    return record["status"] == "finished"


def refuse_other_flags(path: Path, request: train_command.Request) -> None:
    """A run that was made with other flags must not stand in a comparison under this name."""
    made, asked = run_folder.read(path)["flags"], train_command.recorded_flags(request.plan(path))
    other = sorted(flag for flag in {*made, *asked} - train_command.PLACES if made.get(flag) != asked.get(flag))
    if other:
        said = "; ".join(f"{flag} {made.get(flag)}, not {asked.get(flag)}" for flag in other)
        raise UserError(f"{path} was made with {said}. Choose another --out.")


def _train(todo: Sequence[Entry], common: Sequence[str], out: Path, total: int) -> list[tuple[Entry, int]]:
    """Every run in turn; those that failed, with their exit codes."""
    failed, spent, rest = [], [], list(todo)
    out.mkdir(parents=True, exist_ok=True)
    environment = environment_of(["--algo", todo[0].algo, *common])
    while rest:  # a failed run ends its session, the next one opens another
        with (
            tempfile.TemporaryDirectory() as short,  # a socket's path has at most 107 letters
            shared_ray.opened(Path(short) / "session", environment, out / "session.log") as server,
        ):
            while rest and server.poll() is None:
                entry = rest.pop(0)
                print(
                    f"\n--- {entry.name}, run {total - len(rest)} of {total}{_left(spent, len(rest) + 1)}", flush=True
                )
                started = time.monotonic()
                code = _one(entry, common, Path(short) / "session")
                if code == REFUSED or code in INTERRUPTED:
                    return [*failed, (entry, code)]
                if code:
                    failed.append((entry, code))
                    break
                spent.append(time.monotonic() - started)
    return failed


def _words(entry: Entry, common: Sequence[str]) -> list[str]:
    own = ["--recipe", RECIPE, "--algo", entry.algo, "--seed", str(entry.seed), "--run-name", entry.name, "--resume"]
    return [*own, *common, *entry.flags]


def _one(entry: Entry, common: Sequence[str], path: Path) -> int:
    os.environ[shared_ray.VARIABLE] = str(path)
    try:
        return cli.main(["train", *_words(entry, common)])
    finally:
        del os.environ[shared_ray.VARIABLE]


def _left(spent: Sequence[float], count: int) -> str:
    return f", {duration(sum(spent) / len(spent) * count)} left" if spent else ""


def request_of(words: Sequence[str]) -> train_command.Request:
    parser = argparse.ArgumentParser()
    train_command.configure(parser)
    return train_command.Request.of(parser.parse_args(words))


def environment_of(words: Sequence[str]) -> dict[str, str]:
    place = Place.of(RECIPES[RECIPE], None)
    if place.takes_jobs:
        raise UserError("compare trains from this machine: unset RAY_ADDRESS, or set it to HEAD:6379")
    return place.environment(request_of(["--recipe", RECIPE, *words]).plan())


def publish(folders: Iterable[Path], out: Path) -> None:
    """run.json and metrics.jsonl of every run, with paths that mean something elsewhere and numbers of six digits."""
    cache = str(tiny_task.folder_of().parent)
    for folder in folders:
        path = out / "runs" / folder.name
        path.mkdir(parents=True, exist_ok=True)
        text = (folder / "run.json").read_text()
        for here, there in ((str(folder.parent), "runs"), (cache, "CACHE"), (str(Path.cwd()) + "/", "")):
            text = text.replace(here, there)
        write_json(path / "run.json", json.loads(text))
        lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
        short = ({key: _short(value) for key, value in line.items()} for line in lines)
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in short))


def _short(value: object) -> object:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
