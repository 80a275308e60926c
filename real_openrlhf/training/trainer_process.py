"""The training process: its scratch folder, stale locks before its start, its signals, a stall, its exit code."""

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from real_openrlhf.base.run_files import METRICS, PHASE
from real_openrlhf.base.signals import Ended, code_and_words, watched_signals
from real_openrlhf.machine import free_gpus
from real_openrlhf.training.progress import last_error

STRONGER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PATIENCE = 20.0  # seconds for a stalled run that is asked to end
SOON = 3.0  # seconds for SIGINT and for SIGTERM before the next stronger signal: a run may lose one while it imports
STALLED = 124  # the run's exit code after a stall, as timeout(1) has it
LIMIT = "--train.watchdog_minutes"
ASLEEP = 60.0  # seconds; after a longer gap between two looks, as of a suspended job, the clock starts again


@dataclass
class Watch:
    """Ends a run that enters no phase and logs no step for so long. Output does not count: it may never stop."""

    run_dir: Path
    minutes: float  # 0: for ever
    seen: list = field(default_factory=list)
    last: float = field(default_factory=time.monotonic)
    looked: float = field(default_factory=time.monotonic)

    def stalled(self) -> str | None:
        now, phase = time.monotonic(), self.run_dir / PHASE
        signs = [file.stat().st_mtime_ns for file in (phase, self.run_dir / METRICS) if file.exists()]
        if signs != self.seen or now - self.looked > ASLEEP:
            self.seen, self.last = signs, now
        self.looked = now
        if not self.minutes or now - self.last < 60 * self.minutes:
            return None
        where = phase.read_text() if phase.exists() else "the start of Ray, the engine and the policy"
        return f"stalled: nothing new for {self.minutes:g} minutes in {where}. {LIMIT} is the limit, 0 waits for ever"


def drop_stale_locks(folder: Path) -> list[Path]:
    """Remove compiler locks that a killed run left: DeepSpeed would wait for them in the next run.

    A lock is an empty file. It is stale if no process has it open.
    """
    locks = {str(path): path for path in folder.glob("*/lock") if not path.stat().st_size}
    for descriptor in glob.iglob("/proc/[0-9]*/fd/*") if locks else ():
        with contextlib.suppress(OSError):
            locks.pop(os.readlink(descriptor), None)
    for path in locks.values():
        path.unlink(missing_ok=True)
    return list(locks.values())


def supervise(
    command: list[str], environment: Mapping[str, str], lock: int, progress: Any, watch: Watch | None = None
) -> tuple[int, str | None]:
    """Run the command to its end: (exit code, why it failed). A signal is passed on; SIGTERM and SIGKILL follow.

    The exit code of a signal has no reason if the child came to its end all the same. The child writes to
    `progress.log`; `progress` shows how far it is (`update`, `close`). The child has a session of its own, so each
    signal reaches it once, through us. It inherits the locks of folder and GPUs.
    """
    caught: list[int] = []
    sent: list[float] = []  # the times of signals to the child
    stalled: str | None = None
    child: subprocess.Popen | None = None

    def forward(number: int, _: FrameType | None = None) -> None:
        caught.append(number)
        if child:
            sent.append(time.monotonic())
            child.send_signal(STRONGER[min(len(sent), len(STRONGER)) - 1] if number == signal.SIGINT else number)

    before = {number: signal.signal(number, forward) for number in watched_signals()}
    try:
        with progress.log.open("a") as log:
            start = log.tell()
            child = subprocess.Popen(
                command,
                env=dict(environment),
                start_new_session=True,
                pass_fds=(lock, *free_gpus.locks()),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        os.pwrite(lock, f"{child.pid}\n".encode(), 0)  # for the message of a command that finds the folder locked
        while (code := _poll(child)) is None:
            progress.update()
            if caught and (not sent or time.monotonic() - sent[-1] > SOON):
                forward(signal.SIGINT)
            if watch and not stalled and (stalled := watch.stalled()):
                child.terminate()
                child.send_signal(signal.SIGCONT)
                if _poll(child, PATIENCE) is None:
                    child.kill()
    finally:
        progress.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    if stalled:
        return STALLED, stalled
    if caught:
        asked, words = code_and_words(Ended(caught[0]))
        return asked, words if code else None
    if code == signal.SIGTERM:  # a process that has joined Ray ends with this code
        return code, "ended by a SIGTERM from elsewhere"
    if code < 0:
        return 128 - code, f"killed by {signal.Signals(-code).name}"
    return code, last_error(progress.log, start) if code else None


def _poll(child: subprocess.Popen, seconds: float = 0.5) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


LONGEST = 34  # characters of the folder: Ray's names below it take 73, and a socket's path has 107 at most
SECONDS = 3.0  # for processes that still write


def end_ray(folder: str) -> None:
    """End Ray's agents: after the run's end they would try for a minute to reach a cluster that is gone.

    Again until none is found: one that is just starting has no words yet, or starts another.
    """
    import psutil

    deadline, ended = time.monotonic() + SECONDS, True
    while ended and time.monotonic() < deadline:
        ended = False
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = " ".join(process.cmdline())
                if (words.startswith("ray::") or "/ray/" in words) and (
                    process.environ().get("RAY_TMPDIR") == folder
                    # Ray's agents write a long title over their environment: they have open logs
                    or any(file.path.startswith(f"{folder}/") for file in process.open_files())
                ):
                    process.kill()
                    ended = True
        time.sleep(0.1 * ended)


@dataclass
class Scratch:
    """A folder for the sockets and logs of Ray and vLLM in one run on this machine; it goes after a clean end."""

    environment: dict[str, str]
    folder: str
    keep: bool = False  # after a failure, for Ray's logs


def scratch_base(environment: Mapping[str, str]) -> str:
    bases = [*filter(None, map(environment.get, ("RAY_TMPDIR", "TMPDIR"))), "/tmp"]
    # below a long TMPDIR, such as a cluster's job has, Ray could not make its sockets
    return next(base for base in bases if os.path.isdir(base) and len(os.fsencode(f"{base}/real_12345678")) <= LONGEST)


@contextlib.contextmanager
def scratch(environment: Mapping[str, str], link: Path) -> Iterator[Scratch]:
    """The link leads the next start of a killed run to what it left; its folder's lock says that nobody is there."""
    base = scratch_base(environment)
    if link.is_symlink():
        left = link.readlink()
        if left.parent == Path(base) and re.fullmatch(r"real_\w{8}", left.name):  # no other folder goes
            end_ray(str(left))
            shutil.rmtree(left, ignore_errors=True)
        link.unlink()
    folder = tempfile.mkdtemp(prefix="real_", dir=base)
    link.symlink_to(folder)
    made = Scratch({**environment, "RAY_TMPDIR": folder, "VLLM_RPC_BASE_PATH": folder}, folder)
    try:
        yield made
    finally:
        end_ray(folder)
        made.keep = made.keep and bool(os.listdir(folder))
        deadline = time.monotonic() + SECONDS
        while not made.keep and os.path.isdir(folder):
            link.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
