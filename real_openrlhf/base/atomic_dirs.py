"""Folders that are whole or not there: written beside their place, listed with sizes and hashes, then moved."""

import errno
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from real_openrlhf.base.files import sha256, write_json
from real_openrlhf.base.run_files import RECORD

MANIFEST = "manifest.json"
ASIDE = ".replaced-"
Files = dict[str, tuple[int, str]]  # name -> size, SHA-256


def names(folder: Path) -> list[str]:
    """Every file below the folder but its manifest, in an order that all processes share."""
    files = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in files if name != MANIFEST)


def read(folder: Path, chosen: Iterable[str]) -> Files:
    """Flush the chosen files to the disk; return their sizes and hashes."""
    files: Files = {}
    for name in chosen:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
        files[name] = ((folder / name).stat().st_size, sha256(folder / name))
    return files


def publish(draft: Path, target: Path, files: Files, about: dict) -> None:
    write_json(draft / MANIFEST, {**about, "files": files})
    _sync(draft)
    move(draft, target)


def move(draft: Path, target: Path) -> None:
    """Put the folder at its target. After an interrupt `newest_first` finds the old folder there, or the new one."""
    aside = target.with_name(f"{ASIDE}{target.name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        if not may_be_replaced(target):
            raise FileExistsError(errno.EEXIST, "it exists, and real-openrlhf did not write it", str(target))
        shutil.rmtree(aside, ignore_errors=True)
        target.rename(aside)
    draft.rename(target)
    _sync(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def may_be_replaced(folder: Path) -> bool:
    """Whether the folder is empty, ours by a manifest, or in a run's own folder."""
    marks = (folder / MANIFEST, *(parent / RECORD for parent in folder.parents[:3]))
    return folder.is_dir() and (not os.listdir(folder) or any(map(os.path.exists, marks)))


def manifest(folder: Path) -> dict | None:
    """The folder's manifest; None if it is missing or not readable."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        content["files"] = {str(name): (int(size), str(digest)) for name, (size, digest) in content["files"].items()}
        return content if isinstance(content["global_step"], int) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def damage(folder: Path, part: slice = slice(None)) -> str | None:
    """The first file of this part that differs from the manifest, in words; None if no file does."""
    content = manifest(folder)
    if content is None:
        return f"{MANIFEST} is missing or cannot be read"
    for name, (size, digest) in sorted(content["files"].items())[part]:
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != size:
            return f"{name} has {path.stat().st_size} of {size} bytes"
        if sha256(path) != digest:
            return f"{name} is not what was written: its hash differs"
    return None


def newest_first(folder: Path) -> list[Path]:
    """Finished folders, the largest step in their manifests first; of equal steps, the newest folder first.

    A folder that an interrupted `move` put aside and did not replace goes back to its place.
    """
    for aside in folder.glob(f"{ASIDE}*"):
        if not (target := folder / aside.name.removeprefix(ASIDE)).exists():
            aside.rename(target)

    def age(path: Path) -> tuple[int, float]:
        return (manifest(path) or {"global_step": -1})["global_step"], path.stat().st_mtime

    return sorted((path for path in folder.glob("*") if path.is_dir() and path.name[0] != "."), key=age, reverse=True)


def size_of(folders: Sequence[Path]) -> int:
    return sum(path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file())


def _sync(folder: Path) -> None:
    """Flush a folder to the disk, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
