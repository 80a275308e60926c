"""Whose a file or folder is: only what this package wrote is deleted or overwritten.

docs/evidence/reliability.md lists each place where something is written, and how it is known as ours.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import json_line, parsed, sha256, write_json, write_text

MARK = ".real_openrlhf"  # in a folder that a run fills: which run


def refuse_foreign(option: str, files: Iterable[Path], ours: bool) -> None:
    """Raise if one of the files exists and is not ours; `option` names them."""
    if not ours and (there := next(filter(os.path.lexists, files), None)):
        raise UserError(foreign(there, option))


def has_keys(file: Path, *keys: str) -> bool:
    """Whether the file is a JSON object with these keys, as ours is."""
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        return {*keys} <= parsed(file.read_bytes()).keys()
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


# JSONL files of ours: a manifest beside them has their hashes, so that a changed one is known

MANIFEST = ".manifest.json"  # the suffix of the one beside a single file
HASHES = "sha256"  # key of a manifest


def refuse_foreign_rows(option: str, files: Sequence[Path], manifest: Path) -> None:
    """Raise if one of the files has content and is not as we wrote it, or the manifest is not ours."""
    known = _known_hashes(manifest)
    for file in files:
        ours = file.is_file() and (not file.stat().st_size or sha256(file) == known.get(file.name))
        refuse_foreign(option, [file], ours)
    refuse_foreign(option, [manifest], bool(known))


def write_rows(files: Mapping[Path, Iterable[dict]], manifest: Path, about: dict) -> None:
    """Write the files, then their manifest."""
    hashes = {}

    def lines(file: Path) -> Iterator[str]:
        digest = hashlib.sha256()
        for line in map(json_line, files[file]):
            digest.update(line.encode())
            yield line
        hashes[file.name] = digest.hexdigest()

    for file in files:
        write_text(file, lines(file))
    write_json(manifest, {**about, HASHES: hashes})


def _known_hashes(manifest: Path) -> dict[str, str]:
    """{file: its hash}; {} if the manifest is missing or not ours."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return dict(parsed(manifest.read_bytes())[HASHES])
    return {}
