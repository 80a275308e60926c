"""The runs of a comparison, methods x cells of a grid x seeds: the command of each, who has it, and how far it is."""

import contextlib
import itertools
import json
import os
import platform
import re
import shlex
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base import files
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import parsed, write_json
from real_openrlhf.base.parsing import flag_name, words_of
from real_openrlhf.base.secrets import has_one
from real_openrlhf.evaluation.store import SAMPLES
from real_openrlhf.recipes.algorithms import ALGORITHMS, instead_of
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.runs import run_folder
from real_openrlhf.runs.run_folder import now
from real_openrlhf.training import command as train_command
from real_openrlhf.training.launch.progress import duration, rows_in
from real_openrlhf.training.run_inputs import Request

INTERRUPTED = 130
BEAT, DEAD = 20.0, 300.0  # seconds between two touches; seconds without a touch until a remote process is dead
FINISHED, HELD, FAILED, WAITING = "finished", "running", "failed", "waiting"
SIGNALS = (129, INTERRUPTED, 143)  # exit codes of a run that was asked to end
OBJECTIVE = "--algo.real.objective"
RECENT = 10  # steps whose mean time predicts the time left
QUEUE = "queue"  # folder of the attempts
OWN = re.compile(r".+\.py:\w+")  # an objective of the user's own
ASKED = "asked.json"  # in eval/, written by an evaluation that reached its end


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


def entries(algos: Iterable[str], seeds: int, first_seed: int = 1, grid: Sequence[Sequence[str]] = ()) -> list[Entry]:
    """All runs, seed by seed: a comparison that ends early has every algorithm in every cell of the grid."""
    methods = [tuple(words_of("--algos", text)) for text in algos]
    methods = [("real", OBJECTIVE, *words) if OWN.fullmatch(words[0]) else words for words in methods if words]
    if not methods:
        raise UserError("--algos names no algorithm. Name one, such as real, or leave --algos out.")
    for flag, *values in grid:
        if flag_name(flag) == "--":
            raise UserError("--grid names no flag. Give a flag and its values, like --grid actor.adam.lr 1e-4 1e-3.")
        if not values:
            raise UserError(f"--grid {flag}: give its values, like --grid {flag} 1 2.")
    if any(map(has_one, (*methods, *grid))):
        raise UserError("--algos and --grid make the runs' names, and a secret is in them. Give its flag apart.")
    cells = list(itertools.product(*([(flag_name(flag), value) for value in values] for flag, *values in grid)))
    for algo, *_ in methods:
        if algo not in ALGORITHMS:
            near = instead_of(algo)
            raise UserError(
                f"--algos {algo}: not an algorithm. {near}These are: {', '.join(ALGORITHMS)}; an objective of "
                "your own is FILE.py:NAME."
            )
    runs = [
        Entry(algo, (*flags, *itertools.chain(*cell)), seed)
        for seed in range(first_seed, first_seed + seeds)
        for cell in cells
        for algo, *flags in methods
    ]
    named: dict[str, Entry] = {}
    for entry in runs:
        if (other := named.setdefault(entry.name, entry)) is not entry:
            both = " and ".join(shlex.join([one.algo, *one.flags]) for one in (other, entry))
            raise UserError(
                f"--algos or --grid names the same run twice, {entry.name}: {both}. Remove one, or spell one "
                "differently: 0.10 for 0.1, or another file name."
            )
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
        return (path / "run.json").exists() and run_folder.state(path)["status"] == "finished"


# Which process works on which run. The processes share nothing but a file system.
#
# Each attempt 1, 2, ... of a run is a file, which only one process can create. The process holds the attempt until it
# writes the end into the file, or dies: then it no longer locks the file (on this machine) or touches it (on another
# machine). The process that creates the next file takes the run over.


@dataclass(frozen=True)
class Attempt:
    path: Path
    number: int
    record: dict

    @property
    def ended(self) -> float | None:
        return self.record.get("ended_at")

    def is_held(self) -> bool:
        if self.ended is not None:
            return False
        with contextlib.suppress(OSError):  # no locks on this machine: then by the touches alone
            if files.lock_held(self.path):
                return True
        if self.record.get("host") == platform.node() or (job := _job()) and self.record.get("job") == job:
            return False  # the process died here, or SLURM requeued its task, which is this task
        with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=".clock") as probe:  # the file server's clock
            return os.stat(probe.name).st_mtime - self.path.stat().st_mtime < DEAD


def newest(folder: Path, name: str) -> Attempt | None:
    named = re.compile(rf"{re.escape(name)}\.(\d+)\.json")
    numbers = [int(found[1]) for path in folder.glob("*.json") if (found := named.fullmatch(path.name))]
    if not numbers:
        return None
    path = folder / f"{name}.{max(numbers)}.json"
    record: dict = {}
    with contextlib.suppress(ValueError, OSError, TypeError):  # another process is writing it
        record = {**parsed(path.read_bytes())}
    return Attempt(path, max(numbers), record)


@contextlib.contextmanager
def taken(folder: Path, name: str, number: int) -> Iterator[Callable[[int, str | None], None] | None]:
    """Create the attempt and yield a function that records its end; yield None if another process was faster."""
    path = folder / f"{name}.{number}.json"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        file = open(path, "x")
    except FileExistsError:  # another process was faster
        yield None
        return
    record = {"host": platform.node(), "process": os.getpid(), "job": _job(), "started": now()}
    ended = threading.Event()

    def end(code: int, reason: str | None) -> None:
        ended.set()
        write_json(path, {**record, "ended": now(), "ended_at": time.time(), "code": code, "reason": reason})

    def beat() -> None:
        """Touch the file until the attempt ends. Terminate this process if another one has taken the run over."""
        while not ended.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(path)
            if (folder / f"{name}.{number + 1}.json").exists():
                os.kill(os.getpid(), signal.SIGTERM)

    with file:
        files.wait_for_lock(file)
        file.write(json.dumps(record))
        file.flush()
        beats = threading.Thread(target=beat, daemon=True)
        beats.start()
        try:
            yield end
        finally:
            if not ended.is_set():
                end(INTERRUPTED, "the process was interrupted")
            beats.join()


def _job() -> str | None:
    """The name of this SLURM task, which a requeued task keeps; None outside SLURM."""
    job = os.environ.get("SLURM_JOB_ID")
    return f"{job}.{os.environ.get('SLURM_PROCID', '0')}" if job else None


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
    attempt, path = newest(runs.out / QUEUE, entry.name), runs.path(entry)
    held = attempt is not None and attempt.is_held()
    number = attempt.number if attempt else 0
    trained = runs.trained(entry)
    if not held and trained:
        asked = None
        with contextlib.suppress(ValueError, OSError):
            asked = parsed((path / "eval" / ASKED).read_bytes())
        if runs.evaluation is None or asked == {"words": [*runs.evaluation]}:
            return State(FINISHED, "", number)
    if held or run_folder.is_trained(path):
        host = f" on {attempt.record['host']}" if attempt and attempt.record.get("host") else ""
        return State(
            HELD, (f"evaluation, {samples(path)} samples" if trained else training_progress(path)) + host, number
        )
    if attempt and attempt.ended and attempt.record.get("code") not in (0, *SIGNALS):
        log = path / ("eval.log" if trained else "train.log")
        said = f"{attempt.record.get('reason')}" + (f": {log}" if log.exists() else "")
        return State(FAILED, said, number, attempt.ended)
    step = run_folder.last_step(path / "metrics.jsonl")
    return State(WAITING, "for its evaluation" if trained else f"after step {step}" if step else "", number)


def status_lines(runs: RunList, entries: Iterable[Entry]) -> list[str]:
    width = max(len(entry.name) for entry in runs.entries)
    found = ((entry, state(runs, entry)) for entry in entries)
    return [f"{entry.name:{width}}  {one.kind:8}  {one.about}".rstrip() for entry, one in found]


def stepped(path: Path, since: float) -> bool:
    """Whether the run has logged a step since then."""
    log = path / "metrics.jsonl"
    rows = rows_in(log.read_bytes()) if log.exists() else ()
    return any(row.get("phase") == "train" and row.get("time", 0) > since for row in rows)


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


def samples(path: Path) -> int:
    """How many samples the evaluation of this run has drawn."""
    file = path / "eval" / SAMPLES
    return file.read_bytes().count(b"\n") if file.exists() else 0
