"""Files replaced all or none: everything is known before the first byte is written, and each file is swapped whole."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.base.errors import UserError


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """One writer at a time; the lock is on the folder itself, so nothing is left behind."""
    folder = os.open(root / "openrlhf", os.O_RDONLY)
    try:
        # A network file system may not lock folders; there two writers would still only replace like by like.
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.real_openrlhf-tmp")


def _stage(path: Path, content: bytes) -> None:
    _staged(path).write_bytes(content)
    shutil.copymode(path, _staged(path))


def _put(path: Path) -> None:
    """Swap in the staged file; a new inode, so that a hard-linked package cache keeps its own."""
    os.replace(_staged(path), path)
    for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        stale.unlink(missing_ok=True)


def write(root: Path, contents: dict[str, bytes]) -> None:
    """All or nothing: staging takes the room and the permissions, and a failure puts the originals back."""
    originals = {path: (root / path).read_bytes() for path in contents}
    try:
        for path, content in contents.items():
            _stage(root / path, content)
        for path in contents:
            _put(root / path)
    except BaseException as error:
        for path, original in originals.items():
            if (root / path).read_bytes() != original:
                _stage(root / path, original)
                _put(root / path)
        if isinstance(error, OSError):
            raise UserError(
                f"cannot write {error.filename or root}: {error.strerror}. Nothing was changed. Free space or run as "
                "the folder's owner, or patch a copy: `real-openrlhf patch export DIR`."
            ) from error
        raise
    finally:
        for path in contents:
            with contextlib.suppress(OSError):
                _staged(root / path).unlink(missing_ok=True)
