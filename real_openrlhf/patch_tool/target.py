"""The OpenRLHF to patch: a folder that contains openrlhf/, most often site-packages, found without an import.

Its files are replaced all or none: every content is known before the first byte is written, and each file is swapped
whole.
"""

import contextlib
import importlib.metadata
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlparse

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.base import locks
from real_openrlhf.base.errors import UserError
from real_openrlhf.patch_tool.series import UNKNOWN, Series

REINSTALL = f"`pip install --force-reinstall --no-deps openrlhf=={OPENRLHF_VERSION}`"


def find_target(root: Path | None, series: Series) -> tuple[Path, str | None]:
    """The folder of the installed OpenRLHF, or `root`; a `UserError` if its version is not that of the series.

    The second result is None, or the reason why this tool must not change it, and how its owner applies the patches.
    """
    if root is not None:
        root = root.expanduser().resolve()
        if not (root / "openrlhf").is_dir():
            raise UserError(f"{root} contains no folder openrlhf. Give --root the folder that contains it.")
        found = list(importlib.metadata.distributions(name="openrlhf", path=[str(root)]))
        if not found:
            return root, None
        distribution = found[0]
    else:
        try:
            distribution = importlib.metadata.distribution("openrlhf")
        except importlib.metadata.PackageNotFoundError:
            raise UserError(
                f"openrlhf is not installed for {sys.executable}. Install openrlhf=={OPENRLHF_VERSION} "
                "(examples/scripts/setup_env.sh does it), or name a folder with --root."
            ) from None
        root = Path(str(distribution.locate_file(""))).resolve()
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    foreign, am = None, f"`git am {series.folder}/*.patch`"
    if origin.get("dir_info", {}).get("editable"):
        checkout = Path(unquote(urlparse(origin["url"]).path))
        foreign = f"openrlhf is an editable install of {checkout}. Use git there: {am}, or `git revert`."
        root = checkout if (checkout / "openrlhf").is_dir() else root
    elif "vcs_info" in origin:
        foreign = f"openrlhf was installed from {origin['url']}. In a clone of it: {am}, then `pip install .` there."
    if not (root / "openrlhf").is_dir():
        raise UserError(f"the openrlhf folder is missing from {root}. Reinstall it: {REINSTALL}.")
    if distribution.version != OPENRLHF_VERSION:
        raise UserError(
            f"{root} has openrlhf {distribution.version}, the patches are for {OPENRLHF_VERSION}. "
            f"Install that: `pip install openrlhf=={OPENRLHF_VERSION}`."
        )
    return root, foreign


def refuse_unknown(root: Path, states: dict[str, str]) -> None:
    unknown = [path for path, state in states.items() if state == UNKNOWN]
    if unknown:
        raise UserError(
            f"changed by something else in {root}, or patched by another series: {', '.join(unknown)}. "
            f"Nothing was written. Reinstall openrlhf ({REINSTALL}), then apply again."
        )


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """One writer at a time; the lock is on the folder itself, so no lock file is left behind."""
    folder = os.open(root / "openrlhf", os.O_RDONLY)
    try:
        # A network file system may not lock folders; two writers there would write equal files.
        with contextlib.suppress(OSError):
            locks.wait_for(folder)
        yield
    finally:
        os.close(folder)


def _staged(path: Path) -> Path:
    return path.with_name(f".{path.name}.real_openrlhf-tmp")


def _stage(path: Path, content: bytes) -> None:
    _staged(path).write_bytes(content)
    shutil.copymode(path, _staged(path))


def _put(path: Path) -> None:
    """Replace the file by the staged file, a new inode: a hard-linked package cache keeps its content."""
    os.replace(_staged(path), path)
    for stale in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        stale.unlink(missing_ok=True)


def write(root: Path, contents: dict[str, bytes]) -> None:
    """Write all files or none: staging needs space and permission first; a later failure restores the originals."""
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
