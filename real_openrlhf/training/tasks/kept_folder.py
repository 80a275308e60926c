"""Cache folders that take minutes to make: written beside their place, moved when complete, checked before use."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.base import whole_folders
from real_openrlhf.base.errors import UserError
from real_openrlhf.training.tasks.tiny_model import cache_folder

# What system calls, pip and safetensors say of a disk that takes no more.
FULL = re.compile(r"No space left|File too large|Disk quota exceeded|\b[Ee]rrno 28\b|os error (28|27|122)\b")


@contextlib.contextmanager
def making(place: Path, about: dict) -> Iterator[Path]:
    """A draft folder. It becomes `place` if the block ends without an exception, and is removed otherwise."""
    draft = place.with_name(f"{place.name}.making-{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        yield draft
        files = whole_folders.read(draft, whole_folders.names(draft))
        whole_folders.publish(draft, place, files, {"global_step": 0, **about})
    except UserError:
        raise
    except Exception as error:  # safetensors' own error for a full disk is no OSError
        if not FULL.search(str(error)) and not isinstance(error, OSError):
            raise
        raise UserError(unwritten(place, error)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def unwritten(place: Path, why: object) -> str:
    return f"{place} cannot be written: {why}. Free some space, or set REAL_CACHE to a folder that has 1 GB"


def refuse_changed(place: Path) -> None:
    if damage := whole_folders.damage(place):
        raise UserError(
            f"{place} was changed since it was made: {damage}. Delete the folder, and the same command makes it again."
        )


def refuse_changed_model(model: Path) -> None:
    """If its folder is in the cache and has a list of hashes."""
    for place in (model, model.parent):
        if place.parent == cache_folder() and (place / whole_folders.MANIFEST).exists():
            refuse_changed(place)
