"""Data files that this package wrote: a manifest beside them has their hashes."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from real_openrlhf.base import ownership
from real_openrlhf.base.files import parsed, read_bytes, sha256


def refuse_foreign(files: Sequence[Path], manifest: Path) -> None:
    """Raise if one of the files is there and is not as we wrote it, or the manifest is not ours."""
    hashes: dict = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        hashes = dict(parsed(read_bytes(manifest))["sha256"])
    for file in files:
        ours = file.is_file() and hashes.get(file.name) == sha256(file)
        ownership.refuse_foreign("--out", [file], ours)
    ownership.refuse_foreign("--out", [manifest], bool(hashes))
