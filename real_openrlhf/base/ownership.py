"""Whose a file or folder is: only what this package wrote is deleted or overwritten.

docs/evidence/reliability.md lists each place where something is written, and how it is known as ours.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import json_line, parsed, sha256, write_json, write_text


def refuse_foreign(option: str, files: Iterable[Path], ours: bool) -> None:
    """Raise if one of the files exists and is not ours; `option` names them."""
    if not ours and (there := next(filter(os.path.lexists, files), None)):
        left = f"{there} exists, and real-openrlhf did not write it"
        raise UserError(f"{left}. Move it away, or give another {option}.")


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
