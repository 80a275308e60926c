"""Each process of a run writes its phase into a file of the run's folder, and its stacks when the command asks.

faulthandler writes the stacks without the GIL, so a process that hangs in C
code answers too.
"""

import contextlib
import faulthandler
import json
import os
import signal
import socket
import tempfile
import time
from pathlib import Path

PHASE = ".phase"
ASK = signal.SIGUSR1
OFTEN = 5.0  # seconds between two notes of one phase

_noted: tuple[str, float] = ("", 0.0)


def enter(run_dir: str | None, phase: str) -> None:
    """Note that the run is in this phase now; nothing for a run without a folder."""
    global _noted
    if not run_dir or (_noted[0] == f"{run_dir} {phase}" and time.monotonic() - _noted[1] < OFTEN):
        return
    _noted = f"{run_dir} {phase}", time.monotonic()
    note = {"phase": phase, "since": time.time(), "process": os.getpid(), "node": socket.gethostname()}
    draft = Path(run_dir) / f"{PHASE}.{os.getpid()}"
    with contextlib.suppress(OSError):  # the code that needs the disk reports a full disk
        draft.write_text(json.dumps(note))
        draft.replace(draft.with_name(PHASE))


def offer_stacks() -> None:
    """From now on this process writes the stacks of its threads when it gets the signal ASK."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        _place().mkdir(mode=0o700, exist_ok=True)
        if _place().is_symlink() or _place().stat().st_uid != os.getuid():
            return  # another user could redirect what we write
        file = open(_place() / str(os.getpid()), "w")  # for as long as the process lives
        faulthandler.register(ASK, file=file, all_threads=True)


def collect_stacks(above: int, folder: Path, seconds: float = 2.0) -> int:
    """Ask all descendants of process `above` for stacks; write all answers and a list. Returns their number."""
    import psutil

    processes = {}  # state (running, sleeping, disk-sleep, stopped, zombie) and command
    for process in psutil.Process(above).children(recursive=True):
        processes[process.pid] = "gone"
        with contextlib.suppress(psutil.Error):
            found = process.as_dict(["status", "cmdline"])
            processes[process.pid] = f"{found['status']}  {' '.join(found['cmdline'] or ())[:200]}"
    folder.mkdir(parents=True, exist_ok=True)
    asked = {}
    for pid in processes:
        written = _place() / str(pid)
        if written.exists():
            asked[pid] = written, _size(written)
            with contextlib.suppress(OSError):
                os.kill(pid, ASK)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and any(_size(written) == before for written, before in asked.values()):
        time.sleep(0.05)
    time.sleep(0.2)  # answers that have begun can end
    answered = 0
    for pid, (written, before) in asked.items():
        with contextlib.suppress(OSError):
            if said := written.read_bytes()[before:]:
                (folder / f"{pid}.txt").write_bytes(f"{processes[pid]}\n".encode(errors="backslashreplace") + said)
                answered += 1
    (folder / "processes.txt").write_text(
        "".join(f"{pid}  {about}\n" for pid, about in processes.items()), errors="backslashreplace"
    )
    return answered


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _place() -> Path:
    return Path(tempfile.gettempdir()) / f"real_openrlhf_stacks_{os.getuid()}"
