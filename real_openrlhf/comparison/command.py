"""`real-openrlhf compare`: algorithms x seeds on the CPU stack, then the report; what is finished is not run again.

All runs share one session (training/launch/shared_ray.py): Ray and the vLLM engine start once and not once a run.
"""

import argparse
import itertools
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.comparison.publish import publish, refuse_now
from real_openrlhf.errors import UserError, exit_code
from real_openrlhf.parsing import PassThrough, flag_name, positive, whole
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.records import changed_flags, flags_of
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command as train_command
from real_openrlhf.training import run_inputs
from real_openrlhf.training.launch import shared_ray
from real_openrlhf.training.launch.place import Place
from real_openrlhf.training.launch.progress import duration, end_unwatched
from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.tasks import TASKS, TINY, recipe_of

DEFAULT_ALGOS = ("real", "real_constant", "grpo", "dapo", "gspo")
REFUSED = 2
ENDS_ALL = (REFUSED, 129, 130, 143)  # and the signals that interrupt


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


def entries(algos: Iterable[str], seeds: int, first_seed: int = 1, grid: Sequence[Sequence[str]] = ()) -> list[Entry]:
    """Seed by seed, so that a comparison that ends early has every algorithm in every cell of the grid."""
    methods = [tuple(shlex.split(text)) for text in algos]
    for flag, *values in grid:
        if not values:
            raise UserError(f"--grid {flag}: give its values, like --grid {flag} 1 2.")
    cells = list(itertools.product(*([(flag_name(flag), value) for value in values] for flag, *values in grid)))
    for algo, *_ in methods:
        if algo not in ALGORITHMS:
            raise UserError(f"--algos {algo}: not an algorithm. These are: {', '.join(ALGORITHMS)}.")
    runs = [
        Entry(algo, (*flags, *itertools.chain(*cell)), seed)
        for seed in range(first_seed, first_seed + seeds)
        for cell in cells
        for algo, *flags in methods
    ]
    if len({entry.name for entry in runs}) < len(runs):
        raise UserError("--algos or --grid names the same run twice. Remove one.")
    return runs


def configure(parser: argparse.ArgumentParser) -> None:
    parser.__class__ = PassThrough
    parser.allow_abbrev = False
    parser.usage = "%(prog)s [--algos NAME ...] [--seeds N] [--steps N] [--out DIR] [any OpenRLHF flag]"
    parser.add_argument(
        "--algos",
        nargs="+",
        default=DEFAULT_ALGOS,
        metavar="NAME",
        help="algorithms, with flags of their own in quotes: 'real --algo.real.tau 0.1' "
        f"(default: {' '.join(DEFAULT_ALGOS)})",
    )
    parser.add_argument(
        "--seeds", type=positive, default=3, metavar="N", help="seeds of each algorithm (default: %(default)s)"
    )
    parser.add_argument(
        "--first-seed", type=whole, default=1, metavar="N", help="the first seed (default: %(default)s)"
    )
    parser.add_argument(
        "--grid",
        nargs="+",
        action="append",
        default=[],
        metavar=("FLAG", "VALUE"),
        help="run every algorithm at each value: --grid actor.adam.lr 1e-4 1e-3; given twice, at each pair of values, "
        "and the report is their map",
    )
    parser.add_argument("--steps", type=positive, default=40, metavar="N", help="rollout steps (default: %(default)s)")
    parser.add_argument("--task", choices=TASKS, default="reverse", help="the tiny task (default: %(default)s)")
    parser.add_argument(
        "--skill",
        type=float,
        metavar="P",
        help="share of right answers in the model's pre-training; lower is harder (default: the task's)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("comparison"),
        metavar="DIR",
        help="folder for runs and report (default: %(default)s)",
    )
    parser.add_argument(
        "--publish",
        type=Path,
        metavar="DIR",
        help="also write a campaign, small enough to commit: three files with records and logged numbers, without "
        "paths of this machine; refuses runs of uncommitted code",
    )
    parser.add_argument("--compact", action="store_true", help="with --publish: only the numbers that results read")


def run(args: argparse.Namespace) -> int:
    from real_openrlhf.report.page import write
    from real_openrlhf.report.read_runs import read_runs

    grid = {flag_name(flag): [flag, *values] for flag, *values in args.grid}  # of a flag given twice the last
    every = entries(args.algos, args.seeds, args.first_seed, [*grid.values()])
    across = [*grid] if len(grid) == 2 else None
    folder = (args.out / "runs").resolve()
    # A method that breaks down is a result here, and comparable with others only to its end.
    common = ["--train.hopeless_steps", "0"] * ("--train.hopeless_steps" not in args.openrlhf)
    common += [*_task(args.task, args.skill), "--max-steps", str(args.steps)]
    common += ["--runs-dir", str(folder), *args.openrlhf]
    for unseen in filter(None, (end_unwatched(folder / entry.name) for entry in every)):
        print(unseen)
    todo = [entry for entry in every if not finished(folder / entry.name)]
    for entry in every:
        if (folder / entry.name).exists():
            refuse_other_flags(folder / entry.name, train_command.request_of(_words(entry, common)))
    print(f"{len(every)} runs of {args.steps} steps, {len(every) - len(todo)} already finished: {folder}")
    if args.publish and todo:
        refuse_now(args.publish, folder)
    failures = _train(todo, common, args.out.resolve(), len(every)) if todo else []
    if failures and failures[-1][1] == REFUSED:  # and has said why
        return REFUSED
    runs, skipped = read_runs(sorted(folder.glob("*")))  # earlier comparisons in this place too
    if runs:
        map_of = across if across and varied([run.meta for run in runs], across) else None
        print(f"report: {write(runs, skipped, args.out / 'report', map_of)}")
        if args.publish:
            publish([run.path for run in runs if run.status != "running"], args.publish, args.compact)
            print(f"published: {args.publish}")
    for entry, code in failures:
        print(f"{entry.name} ended with exit code {code}: {folder / entry.name / 'train.log'}", file=sys.stderr)
    if failures:
        print("run the same command again for the missing runs", file=sys.stderr)
        return failures[-1][1]
    return 0


def varied(records: Sequence[dict], across: Sequence[str]) -> bool:
    """Whether both flags vary: after an interrupt the finished runs may have one value only."""
    return all(len({str(flags_of(record).get(flag)) for record in records}) > 1 for flag in across)


def _task(name: str, skill: float | None) -> list[str]:
    recipe = ["--recipe", recipe_of(name)]
    if skill is None:
        return recipe
    if name not in TINY:
        raise UserError(f"--skill is for models that are pre-trained here, as for {', '.join(TINY)}. Leave it out.")
    folder = tiny_model.prepare(TINY[name](skill=skill))  # type: ignore[call-arg]
    return [
        *recipe,
        *("--model", str(folder / "model"), "--data", str(folder / "train.jsonl")),
        *(run_inputs.VALIDATION, str(folder / "eval.jsonl")),
    ]


def finished(path: Path) -> bool:
    return path.exists() and run_folder.read(path)["status"] == "finished"


def refuse_other_flags(path: Path, request: train_command.Request) -> None:
    """A run that was made with other flags must not stand in a comparison under this name."""
    if other := changed_flags(run_folder.read(path), request.plan(path)):
        differences = "; ".join(f"{flag} {old}, not {new}" for flag, (old, new) in other.items())
        raise UserError(f"{path} was made with {differences}. Choose another --out.")


def _train(todo: Sequence[Entry], common: Sequence[str], out: Path, total: int) -> list[tuple[Entry, int]]:
    """Runs in turn; those that failed, with their exit codes. A code that ends all of them comes last."""
    out.mkdir(parents=True, exist_ok=True)
    methods = dict.fromkeys((entry.algo, *entry.flags) for entry in todo)
    environment = environment_of(*(["--algo", algo, *common, *flags] for algo, *flags in methods))
    failures: list[tuple[Entry, int]] = []
    seconds: list[float] = []
    waiting = list(todo)
    while waiting:  # a failed run ends its session, the next one opens another
        with (
            tempfile.TemporaryDirectory() as short,  # a socket's path has at most 107 letters
            shared_ray.opened(Path(short) / "session", environment, out / "session.log") as server,
        ):
            while waiting and server.poll() is None:
                left = f", {duration(sum(seconds) / len(seconds) * len(waiting))} left" if seconds else ""
                place = f"run {total - len(waiting) + 1} of {total}{left}"
                entry = waiting.pop(0)
                print(f"\n--- {entry.name}, {place}", flush=True)
                started = time.monotonic()
                code = _one(entry, common, Path(short) / "session")
                seconds.append(time.monotonic() - started)
                if code:
                    failures.append((entry, code))
                    break
            if failures and failures[-1][1] in ENDS_ALL:
                return failures
    return failures


def _words(entry: Entry, common: Sequence[str]) -> list[str]:
    run = ["--algo", entry.algo, "--seed", str(entry.seed), "--run-name", entry.name, "--resume"]
    return [*run, *common, *entry.flags]


def _one(entry: Entry, common: Sequence[str], session: Path) -> int:
    args = train_command.parse(_words(entry, common))
    return exit_code("train", lambda: train_command.run(args, session))


def environment_of(*runs: Sequence[str]) -> dict[str, str]:
    """The environment of a session in which each run can train: a reference model may need its own GPUs."""
    requests = [train_command.request_of(words) for words in runs]
    place = Place.of(requests[0].recipe, None)
    if place.job_address:
        raise UserError("compare trains from this machine: unset RAY_ADDRESS, or set it to HEAD:6379")
    return place.environment(max((request.plan() for request in requests), key=lambda plan: plan.gpus))
