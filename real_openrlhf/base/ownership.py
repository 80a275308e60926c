"""Whose a file or folder is: only what this package wrote is deleted or overwritten.

docs/evidence/reliability.md lists each place where something is written, and how it is known as ours.
"""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import parsed, read_bytes

MARK = ".real_openrlhf"  # in a folder that a run fills: which run


def refuse_foreign(option: str, files: Iterable[Path], ours: bool) -> None:
    """Raise if one of the files exists and is not ours; `option` names them."""
    if not ours and (there := next(filter(os.path.lexists, files), None)):
        raise UserError(foreign(there, option))


def has_keys(file: Path, *keys: str) -> bool:
    """Whether the file is a JSON object with these keys, as ours is."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        return {*keys} <= parsed(read_bytes(file)).keys()
    return False


def foreign(there: Path, option: str) -> str:
    return f"{there} exists, and real-openrlhf did not write it. Move it away, or give another {option}."


def folder_problem(folder: Path, option: str, owner: str | None) -> str | None:
    """Why this run may not fill the folder: it has files and no mark, or another run's mark."""
    if not os.path.lexists(folder) or (owner and owner_of(folder) == owner):
        return None
    if not folder.is_dir():
        return foreign(folder, option)
    files = sorted(os.listdir(folder))
    if not files:
        return None
    if MARK in files:
        return f"{folder} belongs to another run ({owner_of(folder)}). Give another {option}."
    return foreign(folder / files[0], option)


def owner_of(folder: Path) -> str | None:
    try:
        return (folder / MARK).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None


def claim(folder: Path, option: str, owner: str) -> None:
    """Mark the folder as this run's, or raise."""
    if problem := folder_problem(folder, option, owner):
        raise UserError(problem)
    mark(folder, owner)


def mark(folder: Path, owner: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_text(f"{owner}\n", encoding="utf-8")


def owner_name(run_dir: Path) -> str:
    """A run as marks name it: its name and the time of its start, both of which a resume keeps."""
    try:
        record = json.loads((run_dir / "run.json").read_bytes())
        return f"{run_dir.name}, started {record['started']}"
    except (OSError, ValueError, KeyError, TypeError):
        return run_dir.name


def may_be_replaced(folder: Path) -> bool:
    """Whether the folder is empty, ours by a mark or a manifest, or in a run's own folder."""
    marks = (folder / MARK, folder / "manifest.json", *(parent / "run.json" for parent in folder.parents[:3]))
    return folder.is_dir() and (not os.listdir(folder) or any(map(os.path.exists, marks)))
