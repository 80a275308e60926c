"""Locks between processes. The kernel frees them at any ending, also of a process that was killed."""

import fcntl
from pathlib import Path
from typing import IO


def taken(file: IO | int) -> bool:
    """Take the lock of an open file for as long as it stays open; False if another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of this file; an OSError if it cannot be opened."""
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def wait_for(file: IO | int) -> None:
    """Take the lock of an open file when its holder frees it."""
    fcntl.flock(file, fcntl.LOCK_EX)
