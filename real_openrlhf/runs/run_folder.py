"""Run folders: names that never collide, and a run.json that always says what the run was and how it ended.

Standard library only. Nothing is overwritten: a folder that exists is only ever continued, and only when asked.
"""

import contextlib
import difflib
import glob
import os
import platform
import re
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from real_openrlhf.base import files
from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.files import parsed, write_json
from real_openrlhf.base.run_files import FINISHED, LOCK, LOG, METRICS, PHASES, RECORD

# Of every record, with their types; its flags are those of the version that wrote it.
KEYS = {"recipe": (str,), "algo": (str,), "seed": (int, str), "status": (str,)}

SILENT_SECONDS = 3600.0  # after which a run on another machine is dead


def now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def refuse_name(folder: Path, name: str | None) -> None:
    """Raise if `name` is no plain file name, is too long, or exists already in `folder`."""
    if name is None:
        return
    if not re.fullmatch(r"[A-Za-z0-9][\w.+=-]*", name):
        raise UserError(f"--run-name {name!r}: use letters, digits and . _ - + = only; --runs-dir names the place.")
    if (folder / name / RECORD).exists():
        raise UserError(f"{folder / name} exists already. Continue it with --resume, or choose another --run-name.")
    if os.path.lexists(folder / name) and not is_unused(folder / name):
        raise UserError(f"{folder / name} exists, and is not a run. Move it away, or choose another --run-name.")


def is_unused(path: Path) -> bool:
    """Whether this folder holds a lock and nothing else: its command was killed before it wrote a record."""
    names = {file.name for file in path.iterdir()} if path.is_dir() else set()
    return {name for name in names if not name.startswith(".run.json.")} == {LOCK}  # a record's draft is none


def create(folder: Path, stem: str, name: str | None) -> Path:
    """Make the run's folder, with the given name, else with a new name from `stem` and the time."""
    refuse_name(folder, name)
    base = name or f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    path, attempt = folder / base, 1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                return path
            refuse_name(folder, name)  # another process was faster
            if name and is_unused(path):
                return path
            attempt += 1
            path = folder / f"{base}-{attempt}"
    except OSError as error:
        raise UserError(f"cannot make a run folder in {folder}: {error.strerror}. Name another --runs-dir.") from error


def unfinished(folder: Path, stem: str) -> dict[Path, dict]:
    """The unfinished runs of this recipe, method and seed with their records, the newest first."""
    runs = []
    for path in folder.glob(f"{glob.escape(stem)}-*/{RECORD}"):
        record = state(path.parent)
        if record["status"] != "finished" and stem_of(record) == stem:
            runs.append((path.parent, record))
    return dict(sorted(runs, key=lambda run: (str(run[1].get("started")), run[0]), reverse=True))


def near_name(folder: Path, name: str, stem: str) -> Path | None:
    """The unfinished run of this recipe, method and seed whose name is similar; None if there is none."""
    for near in difflib.get_close_matches(name, [path.parent.name for path in folder.glob(f"*/{RECORD}")]):
        with contextlib.suppress(UserError):  # a broken record is told where its run is named
            record = state(folder / near)
            if record["status"] == "failed" and stem_of(record) == stem:
                return folder / near
    return None


def stem_of(record: dict) -> str:
    return run_stem(record["recipe"], record["algo"], record["seed"])


def run_stem(recipe: str, algo: str, seed: int | str) -> str:
    return f"{recipe}-{algo}-s{seed}"


def read(path: Path) -> dict:
    """run.json as it was written last."""
    try:
        record = parsed((path / RECORD).read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} has no run.json, so it is not a run. Name another run.") from None
    except (ValueError, OSError) as error:
        message = f"{path / RECORD} is not JSON ({last_line(error)}). Restore it, or name another run."
        raise UserError(message) from None
    known = record if isinstance(record, dict) else {}
    if lacking := [key for key, kind in KEYS.items() if type(known.get(key)) not in kind]:
        raise UserError(
            f"{path / RECORD} lacks {', '.join(lacking)}, or their types are wrong: an earlier version wrote "
            "it, or it was edited. Name another run."
        )
    return record


def write(path: Path, record: dict) -> None:
    """Replace run.json as a whole: a concurrent reader gets the old file or the new file."""
    write_json(path / RECORD, record)


def state(path: Path, record: dict | None = None) -> dict:
    """The record, with status and ending from the run's files if it says running and no process is left."""
    record = read(path) if record is None else record
    if record.get("status") != "running" or is_running(path):
        return record
    log, finished = path / METRICS, (path / FINISHED).exists()
    here = platform.node()
    if not finished and record.get("host", here) != here:
        # another machine's locks are not visible here: a run there may live if it wrote a file recently
        files = [path / RECORD, log, path / LOG]
        if time.time() - max(file.stat().st_mtime for file in files if file.exists()) < SILENT_SECONDS:
            return record
    ended = datetime.fromtimestamp((log if log.exists() else path / RECORD).stat().st_mtime).astimezone()
    ending = {"finished": ended.isoformat(timespec="seconds"), "unseen": True}
    if finished:
        return record | ending | {"status": "finished", "reason": None}
    reason = f"its processes died after step {last_step(log)} unwatched; the end of train.log may say why"
    return record | ending | {"status": "failed", "reason": reason}


def record_ending(path: Path) -> tuple[str, bool] | None:
    """Write the ending of a run that no command watched into run.json: (a line about it, whether the run finished)."""
    with contextlib.suppress(UserError, OSError):  # another command is faster, or the folder is for reading only
        record = state(path)
        if record.pop("unseen", False):
            with only_one(path):
                write(path, record)
            if record["status"] == "finished":
                return f"{path} finished while nobody watched", True
            return f"{path} failed: {record['reason']}", False
    return None


LAST_STEP = 10**12  # beyond it a number fits no axis


def logged_rows(text: bytes) -> Iterator[dict]:
    """The lines of metrics.jsonl with their numbers; those that a kill cut off, or of others, are skipped."""
    for line in text.splitlines():
        with contextlib.suppress(ValueError, TypeError, AttributeError, LookupError, OverflowError):
            row = parsed(line)
            if row["phase"] in PHASES and 0 <= row["step"] <= LAST_STEP:
                numbers = {key: float(value) for key, value in row.items() if type(value) in (int, float)}
                yield {"time": 0.0, **numbers, "phase": row["phase"], "step": int(row["step"])}


def last_step(log: Path) -> int:
    rows = logged_rows(log.read_bytes() if log.exists() else b"")
    return max((row["step"] for row in rows if row["phase"] == "train"), default=0)


def early_end(last: int, steps: int, every: int) -> str | None:
    """Why a finished run has fewer steps than were asked for; None if it has all of them.

    `every` is the number of steps between two logged ones, of which `last` is the last.
    """
    more = "give more rows, or a larger --train.num_episodes"
    dropped = "(with --algo.dynamic_filtering_enable most prompts may be dropped)"
    return f"the data ended after step {last} of {steps}: {more} {dropped}" if last <= steps - every else None


def is_running(path: Path) -> bool:
    """Whether a process of the run lives, or the command that watches it."""
    with contextlib.suppress(OSError):
        return files.lock_held(path / LOCK)
    return False


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[int]:
    """Lock the folder against a second training; yields the descriptor. The kernel frees the lock at any ending."""
    with open(path / LOCK, "a+") as lock:
        for _ in range(10):  # half a second: who only asks for the state holds the lock for a moment
            if files.lock_taken(lock):
                break
            time.sleep(0.05)
        else:
            lock.seek(0)
            who = f" by process {process}: `kill {process}` ends it" if (process := lock.read().strip()) else ""
            raise UserError(f"{path} is being trained right now{who}. Wait for it, or choose another --run-name.")
        lock.truncate(0)
        yield lock.fileno()
