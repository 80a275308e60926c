"""The patch tool: puts the series in patches/ onto an installed OpenRLHF, and takes it off again.

Standard library only, and OpenRLHF is found without being imported, so that it also runs where an environment is
only half built. What state a file is in follows from its SHA-256 alone: there is no state file that could drift.
See patches/README.md for why the series is applied on disk, and for `git apply`, hard links and other traps.
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

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import sha256
from real_openrlhf.base.parsing import path_of

PACKAGE = Path(__file__).resolve().parent
PATCH_FOLDERS = (PACKAGE / "patches", PACKAGE.parent / "patches")  # in a wheel, in a checkout
REINSTALL = f"`pip install --force-reinstall --no-deps openrlhf=={OPENRLHF_VERSION}`"
BEFORE, AFTER, UNKNOWN = "before", "after", "unknown"


# Unified diffs, exact: no fuzz, no offsets. Files are neither made nor deleted; the hashes say whether all is right


@dataclass(frozen=True)
class Hunk:
    """Lines of a file before and after, with the number of the first one on either side."""

    patch: str
    path: str
    before: tuple[int, list[bytes]]
    after: tuple[int, list[bytes]]


def hunks(content: bytes, name: str) -> Iterator[Hunk]:
    """The hunks of a `git format-patch` file."""
    lines, path = iter(BytesIO(content).readlines()), ""
    for line in lines:
        if line.startswith(b"+++ b/"):
            path = line[6:].rstrip().decode()
        elif numbers := re.match(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            old_start, old_count, new_start, new_count = (
                1 if number is None else int(number) for number in numbers.groups()
            )
            old: list[bytes] = []
            new: list[bytes] = []
            while len(old) < old_count or len(new) < new_count:  # a mail signature begins with a minus, too
                line = next(lines, b"")
                if line[:1] not in (b" ", b"-", b"+"):
                    raise DoesNotFit(f"{name}: {path}: not a line of a hunk: {line!r}")
                old += [line[1:]] * (line[:1] != b"+")
                new += [line[1:]] * (line[:1] != b"-")
            yield Hunk(name, path, (old_start, old), (new_start, new))


class DoesNotFit(Exception):
    """A patch does not match its file, or is none."""


def changed(content: bytes, steps: Iterable[Hunk], want: str) -> bytes:
    """The content after the hunks of one patch, or before them."""
    lines, result, at = BytesIO(content).readlines(), [], 0
    for hunk in steps:
        (first, old), (_, new) = (hunk.before, hunk.after) if want == AFTER else (hunk.after, hunk.before)
        start = first - 1 if old else first
        if start < at or lines[start : start + len(old)] != old:
            raise DoesNotFit(f"{hunk.patch}: {hunk.path} differs from what line {first} expects")
        result += lines[at:start] + new
        at = start + len(old)
    return b"".join(result + lines[at:])


# The patches for one release, and the SHA-256 of each touched file before and after. No other state is kept


@dataclass(frozen=True)
class Series:
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
        try:
            return json.loads((self.folder / "files.json").read_text())
        except FileNotFoundError:
            raise UserError(f"{self.folder} has no files.json. Reinstall real_openrlhf.") from None

    @property
    def sha256(self) -> str:
        """A hash that identifies the patched OpenRLHF of a run."""
        return hashlib.sha256(json.dumps(self.fingerprints, sort_keys=True).encode()).hexdigest()


def load_series() -> Series:
    for folder in PATCH_FOLDERS:
        if (path := folder / f"openrlhf-{OPENRLHF_VERSION}").is_dir():
            return Series(path)
    places = " or ".join(str(folder) for folder in PATCH_FOLDERS)
    raise UserError(f"no patches for openrlhf {OPENRLHF_VERSION} in {places}. Reinstall real_openrlhf.")


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
    try:
        for patch in series.patches if want == AFTER else reversed(series.patches):
            every = [hunk for hunk in hunks(patch.read_bytes(), patch.name) if hunk.path in contents]
            for path, steps in groupby(every, key=lambda hunk: hunk.path):
                result[path] = changed(result[path], steps, want)
    except DoesNotFit as error:
        raise UserError(f"{error}. The patches and their files.json disagree: reinstall real_openrlhf.") from error
    return result


# The OpenRLHF to patch: a folder that contains openrlhf/, most often site-packages, found without an import


def find_target(root: Path | None) -> Path:
    """The folder of the installed OpenRLHF, or `root`; a `UserError` if its version is not that of the series."""
    if root is None:
        spec = importlib.util.find_spec("openrlhf")
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


def write(root: Path, contents: dict[str, bytes]) -> None:
    """Write drafts of all files, which needs space and permission, then move each into its place: a new inode, so that
    a hard-linked package cache keeps its content. What a kill leaves in between, the next call finishes."""
    drafts = {
        root / path: (root / path).with_name(f".{Path(path).name}.real_openrlhf-{os.getpid()}") for path in contents
    }
    try:
        for path, content in contents.items():
            drafts[root / path].write_bytes(content)
            shutil.copymode(root / path, drafts[root / path])
        for target, draft in drafts.items():
            os.replace(draft, target)
    except OSError as error:
        raise UserError(
            f"cannot write {error.filename or root}: {error.strerror}. Free space or run as the folder's owner, then "
            "run this again."
        ) from error
    finally:
        for draft in drafts.values():
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)


# What the command does


def _move(root: Path | None = None, *, want: str, done: str, already: str) -> int:
    """Bring every touched file to the state `want`; returns how many were not there yet."""
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
    write(root, contents)
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
    if UNKNOWN in states.values():
        word, code = "unknown", 2
    elif len(kinds := set(states.values())) == 1:
        word, code = ("applied", 0) if AFTER in kinds else ("not applied", 1)
    print(f"{series.name}: {word} in {root} ({_size(series)})")
    for path, state in states.items():
        if state == UNKNOWN:
            gone = "" if (root / path).exists() else " (missing)"
            print(f"  changed by something else, or by another series: {path}{gone}")
    if code == 2:
        print(f"  to start afresh: {REINSTALL}, then `real-openrlhf patch apply`")
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
    actions.add_parser("apply", parents=[where], help="apply the series, all or nothing")
    actions.add_parser("revert", parents=[where], help="restore the release, byte for byte")


def run(args: argparse.Namespace) -> int:
    if args.action == "status":
        return status(args.root)
    (apply if args.action == "apply" else revert)(args.root)
    return 0


if __name__ == "__main__":
    from real_openrlhf.cli import main

    sys.exit(main(["patch", *sys.argv[1:]]))
