"""The patch tool: puts the series in patches/ onto an installed OpenRLHF, and takes it off again.

Standard library only, and OpenRLHF is found without being imported, so that it also runs where an environment is
only half built. What state a file is in follows from its SHA-256 alone: there is no state file that could drift.
See patches/README.md for why the series is applied on disk.
"""

import argparse
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO  # its lines are diff's: split at newlines only, line ends kept
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import sha256
from real_openrlhf.base.parsing import path_of

PACKAGE = Path(__file__).resolve().parent
PATCH_FOLDERS = (PACKAGE / "patches", PACKAGE.parent / "patches")  # in a wheel, in a checkout
REINSTALL = f"`pip install --force-reinstall --no-deps openrlhf=={OPENRLHF_VERSION}`"
BEFORE, AFTER, UNKNOWN = "before", "after", "unknown"


class Hunk(NamedTuple):
    """Lines of a file before and after, with the number of the first one on either side."""

    path: str
    before: tuple[int, list[bytes]]
    after: tuple[int, list[bytes]]


def hunks(content: bytes) -> Iterator[Hunk]:
    """The hunks of a `git format-patch` file, which neither makes nor deletes files."""
    lines, path = iter(BytesIO(content).readlines()), ""
    for line in lines:
        if line.startswith(b"+++ b/"):
            path = line[6:].rstrip().decode()
        elif numbers := re.match(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            old_start, old_count, new_start, new_count = (int(number or 1) for number in numbers.groups())
            old: list[bytes] = []
            new: list[bytes] = []
            while len(old) < old_count or len(new) < new_count:  # a mail signature begins with a minus, too
                line = next(lines)
                old += [line[1:]] * (line[:1] != b"+")
                new += [line[1:]] * (line[:1] != b"-")
            yield Hunk(path, (old_start, old), (new_start, new))


def changed(content: bytes, steps: Iterable[Hunk], want: str) -> bytes:
    """The content after the hunks of one patch, or before them; no fuzz, and the hashes say whether all is right."""
    lines, result, at = BytesIO(content).readlines(), [], 0
    for hunk in steps:
        (first, old), (_, new) = (hunk.before, hunk.after) if want == AFTER else (hunk.after, hunk.before)
        start = first - 1 if old else first
        result += lines[at:start] + new
        at = start + len(old)
    return b"".join(result + lines[at:])


@dataclass(frozen=True)
class Series:
    """The patches for one release, and the SHA-256 of each touched file before and after."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def patches(self) -> list[Path]:
        return sorted(self.folder.glob("*.patch"))

    @property
    def fingerprints(self) -> dict[str, dict[str, str]]:
        """{path: {"before": sha256, "after": sha256}}"""
        return json.loads((self.folder / "files.json").read_text())

    @property
    def sha256(self) -> str:
        """A hash that identifies the patched OpenRLHF of a run."""
        return hashlib.sha256(json.dumps(self.fingerprints, sort_keys=True).encode()).hexdigest()


def load_series() -> Series:
    for folder in PATCH_FOLDERS:
        if (path := folder / f"openrlhf-{OPENRLHF_VERSION}").is_dir():
            return Series(path)
    raise UserError(f"no patches for openrlhf {OPENRLHF_VERSION} in {PATCH_FOLDERS[0]}. Reinstall real_openrlhf.")


def file_states(root: Path, series: Series) -> dict[str, str]:
    """{path: BEFORE, AFTER or UNKNOWN} for every file that the series touches."""
    states = {}
    for path, known in series.fingerprints.items():
        digest = sha256(root / path) if (root / path).is_file() else None
        states[path] = next((state for state in (AFTER, BEFORE) if known[state] == digest), UNKNOWN)
    return states


def moved(contents: dict[str, bytes], series: Series, want: str) -> dict[str, bytes]:
    """The content of each path after all patches, or before them."""
    result = dict(contents)
    for patch in series.patches if want == AFTER else reversed(series.patches):
        every = [hunk for hunk in hunks(patch.read_bytes()) if hunk.path in contents]
        for path, steps in groupby(every, key=lambda hunk: hunk.path):
            result[path] = changed(result[path], steps, want)
    return result


def find_target(root: Path | None) -> Path:
    """The folder of the installed OpenRLHF, or `root`; a `UserError` if its version is not that of the series."""
    if root is None:
        spec = importlib.util.find_spec("openrlhf")  # without an import
        if spec is None or not spec.submodule_search_locations:
            raise UserError(
                f"openrlhf is not installed for {sys.executable}. Install openrlhf=={OPENRLHF_VERSION} "
                "(examples/scripts/setup_env.sh does it), or name a folder with --root."
            )
        root = Path(spec.submodule_search_locations[0]).parent
    elif not (root / "openrlhf").is_dir():
        raise UserError(f"{root} contains no folder openrlhf. Give --root the folder that contains it.")
    distribution = next(iter(importlib.metadata.distributions(name="openrlhf", path=[str(root)])), None)
    if distribution is not None and distribution.version != OPENRLHF_VERSION:
        raise UserError(
            f"{root} has openrlhf {distribution.version}, the patches are for {OPENRLHF_VERSION}. "
            f"Install that: `pip install openrlhf=={OPENRLHF_VERSION}`."
        )
    return root.resolve()


def write(target: Path, content: bytes) -> None:
    """Replace the file by a new inode, so that a hard-linked package cache keeps its content."""
    draft = target.with_name(f".{target.name}.real_openrlhf-{os.getpid()}")
    try:
        draft.write_bytes(content)
        shutil.copymode(target, draft)
        os.replace(draft, target)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or target}: {error.strerror}. Free space or run as the folder's owner, "
            "then run this again."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _move(root: Path | None = None, *, want: str, done: str, already: str) -> int:
    """Bring every touched file to the state `want`; returns how many were not there yet. What a kill leaves in
    between, the next call finishes."""
    series = load_series()
    root = find_target(root)
    states = file_states(root, series)
    paths = [path for path, state in states.items() if state != want]
    if unknown := [path for path, state in states.items() if state == UNKNOWN]:
        raise UserError(
            f"changed by something else in {root}, or patched by another series: {', '.join(unknown)}. "
            f"Nothing was written. Reinstall openrlhf ({REINSTALL}), then apply again."
        )
    contents = moved({path: (root / path).read_bytes() for path in paths}, series, want)
    for path, content in contents.items():
        if hashlib.sha256(content).hexdigest() != series.fingerprints[path][want]:
            raise UserError(f"patching {path} gives another file than files.json says. Reinstall real_openrlhf.")
    for path, content in contents.items():
        write(root / path, content)
    print(f"{series.name}: {done if paths else already} in {root} ({_size(series)})")
    return len(paths)


apply = partial(_move, want=AFTER, done="applied", already="was applied already")
revert = partial(_move, want=BEFORE, done="reverted", already="was not applied")  # byte-identical to the release


def status(root: Path | None = None) -> int:
    """Print what state the files are in; 0 applied, 1 not applied, 2 unknown."""
    series = load_series()
    root = find_target(root)
    states = file_states(root, series)
    word, code = "partly applied: run apply or revert to finish", 1
    if unknown := [path for path, state in states.items() if state == UNKNOWN]:
        names = ", ".join(path if (root / path).exists() else f"{path} (missing)" for path in unknown)
        word, code = f"changed by something else, or by another series: {names}; {REINSTALL}, then apply,", 2
    elif len(kinds := set(states.values())) == 1:
        word, code = ("applied", 0) if AFTER in kinds else ("not applied", 1)
    print(f"{series.name}: {word} in {root} ({_size(series)})")
    return code


def _size(series: Series) -> str:
    return f"{len(series.patches)} patches, {len(series.fingerprints)} files"


def assert_applied() -> None:
    """Called where the code runs: a driver can be patched while the worker on another node is not.

    Hashes the package that this process imports (a job's working_dir can shadow the installed one).
    """
    series = load_series()
    root = find_target(None)
    if wrong := [path for path, state in file_states(root, series).items() if state != AFTER]:
        apply = [sys.executable, "-m", "real_openrlhf.patching", "apply", "--root", str(root)]
        raise UserError(
            f"{root / 'openrlhf'} on node {socket.gethostname()} does not carry the patches {series.name} "
            f"({len(wrong)} files differ, such as {wrong[0]}). On that node run `{shlex.join(apply)}` and start Ray "
            "again."
        )


def configure(parser: argparse.ArgumentParser) -> None:
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--root", type=path_of, help="folder that contains openrlhf/ (default: the installed one)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("status", parents=[where], help="exit 0: applied, 1: not applied, 2: unknown")
    actions.add_parser("apply", parents=[where], help="apply the series")
    actions.add_parser("revert", parents=[where], help="restore the release, byte for byte")


def run(args: argparse.Namespace) -> int:
    if args.action == "status":
        return status(args.root)
    (apply if args.action == "apply" else revert)(args.root)
    return 0


if __name__ == "__main__":
    from real_openrlhf.cli import main

    sys.exit(main(["patch", *sys.argv[1:]]))
