"""Files replaced all or none: everything is known before the first byte is written, and each file is swapped whole."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.errors import UserError
from real_openrlhf.patch_tool.series import read


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
    path.parent.mkdir(parents=True, exist_ok=True)
    _staged(path).write_bytes(content)
    if path.exists():
        shutil.copymode(path, _staged(path))


def _put(path: Path, content: bytes | None) -> None:
    """Swap in the staged file; a new inode, so that a hard-linked package cache keeps its own."""
    if content is None:
        path.unlink()
    else:
        os.replace(_staged(path), path)
    for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        stale.unlink(missing_ok=True)
    if content is None:
        _prune(path.parent)


def _prune(folder: Path) -> None:
    """Remove a folder that the series made and that nothing is in any more."""
    with contextlib.suppress(OSError):
        (folder / "__pycache__").rmdir()
    with contextlib.suppress(OSError):
        os.removedirs(folder)


def write(root: Path, contents: dict[str, bytes | None]) -> None:
    """All or nothing: staging takes the room and the permissions, and a failure puts the originals back."""
    originals = {path: read(root / path) for path in contents}
    done = []
    try:
        for path, content in contents.items():
            if content is not None:
                _stage(root / path, content)
        for path, content in contents.items():
            done.append(path)
            _put(root / path, content)
    except BaseException as error:
        for path in done:
            if read(root / path) != originals[path]:
                if (original := originals[path]) is not None:
                    _stage(root / path, original)
                _put(root / path, originals[path])
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
            _prune((root / path).parent)
