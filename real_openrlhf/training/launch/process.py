"""The training process from start to end: what must be out of its way, its signals, its exit code."""

import contextlib
import glob
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from real_openrlhf.training.launch.progress import Progress, last_error
from real_openrlhf.training.launch.stalled import CODE, Watch

PATIENCE = 20.0  # seconds for a run that is asked to end


def drop_stale_locks(folder: Path) -> list[Path]:
    """DeepSpeed's compiler lock outlives a run that is killed meanwhile, and the next run would wait for it.

    Whoever compiles keeps the file open.
    """
    locks = {str(path): path for path in folder.glob("*/lock")}
    for descriptor in glob.iglob("/proc/[0-9]*/fd/*") if locks else ():
        with contextlib.suppress(OSError):
            locks.pop(os.readlink(descriptor), None)
    for path in locks.values():
        path.unlink(missing_ok=True)
    return list(locks.values())


def supervise(
    command: list[str], environment: Mapping[str, str], lock: int, progress: Progress, watch: Watch | None = None
) -> tuple[int, str | None]:
    """Run to the end; (exit code, why it failed). The first Ctrl-C asks, the next ones insist.

    The child writes to the run's log and we tell how far it is. It has its own session, so that a signal reaches it
    once and through us, and holds the folder's lock with us.
    """
    caught: list[int] = []
    stalled: str | None = None
    insist = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)

    def forward(number: int, _: FrameType | None) -> None:
        caught.append(number)
        child.send_signal(insist[min(len(caught), len(insist)) - 1] if number == signal.SIGINT else number)

    with progress.log.open("a") as log:
        child = subprocess.Popen(
            command,
            env=dict(environment),
            start_new_session=True,
            pass_fds=(lock,),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    os.pwrite(lock, f"{child.pid}\n".encode(), 0)  # for whoever finds the folder locked
    watched = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in watched}
    try:
        while (code := _poll(child)) is None:
            progress.update()
            if watch and not stalled and (stalled := watch.stalled()):
                _end(child)
    finally:
        progress.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    if stalled:
        return CODE, stalled
    if caught:
        return 128 + caught[0], f"interrupted by {signal.Signals(caught[0]).name}"
    if code == signal.SIGTERM:  # as what has joined Ray ends
        return code, "ended by a SIGTERM from elsewhere"
    if code < 0:
        return 128 - code, f"killed by {signal.Signals(-code).name}"
    return code, last_error(progress.log) if code else None


def _end(child: subprocess.Popen) -> None:
    """Ask the process to end; kill it if it does not."""
    child.terminate()
    child.send_signal(signal.SIGCONT)
    if _poll(child, PATIENCE) is None:
        child.kill()


def _poll(child: subprocess.Popen, seconds: float = 0.5) -> int | None:
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
