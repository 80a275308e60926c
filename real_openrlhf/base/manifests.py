"""JSONL files that this package wrote: a manifest beside them has their hashes, so that a changed one is known."""

import contextlib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from real_openrlhf.base import ownership
from real_openrlhf.base.files import parsed, read_bytes, sha256, write_json, write_text

MANIFEST = ".manifest.json"  # the suffix of the one beside a single file
HASHES, UNFINISHED = "sha256", "unfinished"  # keys of a manifest


def refuse_foreign_rows(option: str, files: Sequence[Path], manifest: Path) -> None:
    """Raise if one of the files has content and is not as we wrote it, or the manifest is not ours."""
    known = _known_hashes(manifest)
    for file in files:
        ours = file.is_file() and (not file.stat().st_size or sha256(file) in known.get(file.name, ()))
        ownership.refuse_foreign(option, [file], ours)
    ownership.refuse_foreign(option, [manifest], bool(known))


def write_rows(files: Mapping[Path, Iterable[dict]], manifest: Path, about: dict) -> None:
    """Write the files and their manifest. After an interrupt the same call knows its files: old, new or missing."""
    texts = {file: [json.dumps(row, ensure_ascii=False) + "\n" for row in rows] for file, rows in files.items()}
    hashes = {file.name: hashlib.sha256("".join(lines).encode()).hexdigest() for file, lines in texts.items()}
    content = {**about, HASHES: hashes}
    write_json(manifest, {**content, UNFINISHED: _known_hashes(manifest)})
    for file, lines in texts.items():
        write_text(file, lines)
    write_json(manifest, content)


def _known_hashes(manifest: Path) -> dict[str, list[str]]:
    """{file: its hash, and after an interrupt also those of before}"""
    known: dict[str, list[str]] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        content = parsed(read_bytes(manifest))
        known = {name: [*before] for name, before in content.get(UNFINISHED, {}).items()}
        for name, one in content[HASHES].items():
            known.setdefault(name, []).append(one)
    return known
