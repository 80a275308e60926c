"""Detect a stalled run: each phase has a limit, after which the run ends and names its phase."""

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from real_openrlhf.files import parsed
from real_openrlhf.signs_of_life import PHASE, collect_stacks

CODE = 124  # the run's exit code, as of timeout(1)
FOLDER = "stalled"
FLAG = "--train.hung_minutes"
ASLEEP = 60.0  # seconds between two looks, after which it was the watcher that stood still


@dataclass
class Watch:
    """Signs of life are a new phase and lines in the logs of steps, not what libraries print: they can for ever."""

    run_dir: Path
    minutes: float  # 0: for ever
    seen: tuple = ()
    last: float = field(default_factory=time.monotonic)
    looked: float = field(default_factory=time.monotonic)

    def stalled(self) -> str | None:
        """The stalled phase, once it exceeds the limit, else None."""
        now = time.monotonic()
        signs = tuple(_stamp(self.run_dir / name) for name in (PHASE, "metrics.jsonl", "notes.jsonl"))
        if signs != self.seen or now - self.looked > ASLEEP:
            self.seen, self.last = signs, now
        self.looked = now
        if not self.minutes or now - self.last < 60 * self.minutes:
            return None
        folder = self.run_dir / FOLDER
        count = collect_stacks(os.getpid(), folder)
        return (
            f"stalled: nothing new for {self.minutes:g} minutes in {self.phase()}; stacks of {count} processes are in "
            f"{folder}. {FLAG} is the limit, 0 waits for ever"
        )

    def phase(self) -> str:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            note = parsed((self.run_dir / PHASE).read_bytes())
            since = time.strftime("%H:%M:%S", time.localtime(note["since"]))
            return f"{note['phase']}, since {since}, noted by process {note['process']} on {note['node']}"
        return "the start of Ray, the engine and the policy"


def _stamp(path: Path) -> tuple[int, int]:
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_size
    return 0, 0
