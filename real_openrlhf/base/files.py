"""Files that are whole or absent, written beside their place and moved into it; and locks."""

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

SURROGATE = re.compile("[\ud800-\udfff]")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_all(files: Iterable[Path]) -> str:
    """One hash of several files of a folder and their names."""
    lines = [f"{sha256(file)} {file.name}" for file in sorted(files)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def amount(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.0f} MB"


def parsed(text: str | bytes) -> Any:
    """Parse JSON of any origin. Every fault is a ValueError, also nesting that is too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """An interrupted write leaves the old file, or none; never half of a new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder", error.filename) from error
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_jsonl(path: Path, rows: Iterable[dict]) -> None:
    write_text(path, map(json_line, rows))


def json_line(row: dict) -> str:
    """A cut text may end in half a character, a surrogate, which UTF-8 does not have: it stays an escape."""
    line = json.dumps(row, ensure_ascii=False)
    return f"{json.dumps(row) if SURROGATE.search(line) else line}\n"


def write_json(path: Path, value: dict) -> None:
    write_text(path, [json.dumps(value, ensure_ascii=False, indent=2) + "\n"])


# Locks between processes. The kernel frees them at any ending, also of a process that was killed


def lock_taken(file: IO | int) -> bool:
    """Take the lock of an open file for as long as it stays open; False if another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_shared(file: IO | int) -> bool:
    """Take a share of the lock for as long as the file stays open; False if another process holds all of it."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_held(path: Path) -> bool:
    """Whether a process holds the lock of this file; an OSError if it cannot be opened or locked."""
    with open(path) as file:
        return not lock_shared(file)
