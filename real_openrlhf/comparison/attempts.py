"""Decide which process works on which run. The processes share nothing but a file system.

Each attempt 1, 2, ... of a run is a file, which only one process can create. The process holds the attempt until it
writes the end into the file, or dies: then it no longer locks the file (on this machine) or touches it (on another
machine). The process that creates the next file takes the run over.
"""

import contextlib
import json
import os
import platform
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.base import files
from real_openrlhf.base.files import parsed, write_json
from real_openrlhf.runs.run_folder import now

INTERRUPTED = 130
BEAT, DEAD = 20.0, 300.0  # seconds between two touches; seconds without a touch until a remote process is dead


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
        if files.lock_held(self.path):
            return True
        if self.record.get("host") == platform.node() or (job := _job()) and self.record.get("job") == job:
            return False  # the process died here, or SLURM requeued its task, which is this task
        return _clock(self.path.parent) - self.path.stat().st_mtime < DEAD


def newest(folder: Path, name: str) -> Attempt | None:
    named = re.compile(rf"{re.escape(name)}\.(\d+)\.json")
    numbers = [int(found[1]) for path in folder.glob("*.json") if (found := named.fullmatch(path.name))]
    if not numbers:
        return None
    path = _path(folder, name, max(numbers))
    try:
        record = parsed(path.read_bytes())
    except (ValueError, OSError):  # another process is writing it
        record = {}
    return Attempt(path, max(numbers), record if isinstance(record, dict) else {})


@contextlib.contextmanager
def taken(folder: Path, name: str, number: int) -> Iterator[Callable[[int, str | None], None] | None]:
    """Create the attempt and yield a function that records its end; yield None if another process was faster."""
    path = _path(folder, name, number)
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

    with file:
        files.wait_for_lock(file)
        file.write(json.dumps(record))
        file.flush()
        beats = threading.Thread(target=_beat, args=(path, _path(folder, name, number + 1), ended), daemon=True)
        beats.start()
        try:
            yield end
        finally:
            if not ended.is_set():
                end(INTERRUPTED, "the process was interrupted")
            beats.join()


def _beat(path: Path, successor: Path, ended: threading.Event) -> None:
    """Touch the file until the attempt ends. Terminate this process if another one has taken the run over."""
    while not ended.wait(BEAT):
        with contextlib.suppress(OSError):
            os.utime(path)
        if successor.exists():
            os.kill(os.getpid(), signal.SIGTERM)


def _path(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}.{number}.json"


def _job() -> str | None:
    """The name of this SLURM task, which a requeued task keeps; None outside SLURM."""
    job = os.environ.get("SLURM_JOB_ID")
    return f"{job}.{os.environ.get('SLURM_PROCID', '0')}" if job else None


def _clock(folder: Path) -> float:
    """The time by the file server's clock."""
    probe = folder / f".clock-{platform.node()}-{os.getpid()}"
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
