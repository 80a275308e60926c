"""The runs of a comparison, methods x cells of a grid x seeds: the command of each, and how far it is."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import parsed
from real_openrlhf.base.parsing import did_you_mean, flag_name, words_of
from real_openrlhf.base.secrets import has_one
from real_openrlhf.comparison import attempts
from real_openrlhf.evaluation.store import SAMPLES
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command as train_command
from real_openrlhf.training.launch.progress import duration, rows_in
from real_openrlhf.training.run_inputs import Request

FINISHED, HELD, FAILED, WAITING = "finished", "running", "failed", "waiting"
SIGNALS = (129, attempts.INTERRUPTED, 143)  # exit codes of a run that was asked to end
RECENT = 10  # steps whose mean time predicts the time left
QUEUE = "queue"  # folder of the attempts
ASKED = "asked.json"  # in eval/, written by an evaluation that reached its end


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
    """All runs, seed by seed: a comparison that ends early has every algorithm in every cell of the grid."""
    methods = [tuple(words_of("--algos", text)) for text in algos]
    for flag, *values in grid:
        if not values:
            raise UserError(f"--grid {flag}: give its values, like --grid {flag} 1 2.")
    if any(map(has_one, (*methods, *grid))):
        raise UserError("--algos and --grid make the runs' names, and a secret is in them. Give its flag apart.")
    cells = list(itertools.product(*([(flag_name(flag), value) for value in values] for flag, *values in grid)))
    for algo, *_ in methods:
        if algo not in ALGORITHMS:
            near = did_you_mean(algo, ALGORITHMS)
            raise UserError(f"--algos {algo}: not an algorithm. {near}These are: {', '.join(ALGORITHMS)}.")
    runs = [
        Entry(algo, (*flags, *itertools.chain(*cell)), seed)
        for seed in range(first_seed, first_seed + seeds)
        for cell in cells
        for algo, *flags in methods
    ]
    if len({entry.name for entry in runs}) < len(runs):
        raise UserError("--algos or --grid names the same run twice. Remove one.")
    return runs


@dataclass(frozen=True)
class RunList:
    """The runs of a comparison and their common words; `evaluation` are words of `real-openrlhf eval` or None."""

    entries: list[Entry]
    common: tuple[str, ...]
    out: Path
    evaluation: tuple[str, ...] | None

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

    def trained(self, entry: Entry) -> bool:
        path = self.path(entry)
        return (path / "run.json").exists() and run_folder.read(path)["status"] == "finished"


# The progress of each run, read from its files


@dataclass(frozen=True)
class State:
    """`attempt` is the number of the newest attempt, `ended` the time at which a failed attempt ended."""

    kind: str
    about: str
    attempt: int = 0
    ended: float = 0.0


def state(runs: RunList, entry: Entry) -> State:
    """Reads the attempt before the run's folder, to avoid a race with the next attempt."""
    newest, path = attempts.newest(runs.out / QUEUE, entry.name), runs.path(entry)
    held = newest is not None and newest.is_held()
    number = newest.number if newest else 0
    trained = runs.trained(entry)
    if not held and trained and (runs.evaluation is None or is_evaluated(path, runs.evaluation)):
        return State(FINISHED, "", number)
    if held or run_folder.is_trained(path):
        host = f" on {newest.record['host']}" if newest and newest.record.get("host") else ""
        return State(
            HELD, (f"evaluation, {samples(path)} samples" if trained else training_progress(path)) + host, number
        )
    if newest and newest.ended and newest.record.get("code") not in (0, *SIGNALS):
        log = path / ("eval.log" if trained else "train.log")
        said = f"{newest.record.get('reason')}" + (f": {log}" if log.exists() else "")
        return State(FAILED, said, number, newest.ended)
    step = run_folder.last_step(path / "metrics.jsonl")
    return State(WAITING, "for its evaluation" if trained else f"after step {step}" if step else "", number)


def status_lines(runs: RunList, entries: Iterable[Entry]) -> list[str]:
    width = max(len(entry.name) for entry in runs.entries)
    found = ((entry, state(runs, entry)) for entry in entries)
    return [f"{entry.name:{width}}  {one.kind:8}  {one.about}".rstrip() for entry, one in found]


def training_progress(path: Path) -> str:
    """`step 12 of 40, 3 min 10 s left`"""
    log, record = path / "metrics.jsonl", path / "run.json"
    step = run_folder.last_step(log)
    if not step or not record.exists():
        return "starting"
    recent = [row for row in rows_in(log.read_bytes()) if row.get("phase") == "train"][-RECENT:]
    total = flags_of(parsed(record.read_bytes())).get("--train.max_steps")
    if not isinstance(total, int) or not total or len(recent) < 2:
        return f"step {step}"
    left = (recent[-1]["time"] - recent[0]["time"]) / (len(recent) - 1) * (total - step)
    return f"step {step} of {total}, {duration(left)} left"


def is_evaluated(path: Path, words: Sequence[str]) -> bool:
    try:
        return parsed((path / "eval" / ASKED).read_bytes()) == {"words": [*words]}
    except (ValueError, OSError):
        return False


def samples(path: Path) -> int:
    """How many samples the evaluation of this run has drawn."""
    file = path / "eval" / SAMPLES
    return file.read_bytes().count(b"\n") if file.exists() else 0
