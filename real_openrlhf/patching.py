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
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO  # its lines are diff's: split at newlines only, line ends kept
from pathlib import Path
from urllib.parse import unquote, urlparse

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.base import files
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import sha256
from real_openrlhf.base.parsing import path_of

PACKAGE = Path(__file__).resolve().parent
PATCH_FOLDERS = (PACKAGE / "patches", PACKAGE.parent / "patches")  # in a wheel, in a checkout
REINSTALL = f"`pip install --force-reinstall --no-deps openrlhf=={OPENRLHF_VERSION}`"
BEFORE, AFTER, UNKNOWN = "before", "after", "unknown"


# Unified diffs: a reader and applier that is exact, without fuzz or offsets, and works on bytes


@dataclass(frozen=True)
class Hunk:
    old_start: int
    old: list[bytes]
    new_start: int
    new: list[bytes]


@dataclass(frozen=True)
class FileDiff:
    """The change of one file by one patch."""

    patch: str
    path: str
    hunks: list[Hunk]

    def reverse(self) -> "FileDiff":
        hunks = [Hunk(hunk.new_start, hunk.new, hunk.old_start, hunk.old) for hunk in self.hunks]
        return FileDiff(self.patch, self.path, hunks)


class DoesNotFit(Exception):
    """A diff does not match the file, or is of a kind that this module does not support."""


def parse_patch(content: bytes, name: str) -> list[FileDiff]:
    """Read a `git format-patch` file; every text before the first `diff --git` line is its header."""
    lines, at, diffs = BytesIO(content).readlines(), 0, []
    while at < len(lines):
        header = re.match(rb"diff --git a/(\S+) b/(\S+)\n", lines[at])
        at += 1
        if not header:
            continue
        path = header[2].decode(errors="backslashreplace")
        odd = not path.isprintable() or "\\" in path or {"", ".", ".."} & set(path.split("/"))
        if header[1] != header[2] or not path.startswith("openrlhf/") or odd:
            raise DoesNotFit(f"{name}: {path}: renames and files outside openrlhf/ are not supported")
        while at < len(lines) and not lines[at].startswith((b"@@ ", b"diff --git ")):
            if lines[at].startswith((b"new file mode ", b"deleted file mode ")):
                raise DoesNotFit(f"{name}: {path}: new files belong into real_openrlhf/, and files are not deleted")
            at += 1
        hunks = []
        while at < len(lines) and lines[at].startswith(b"@@ "):
            hunk, at = _parse_hunk(lines, at, name)
            hunks.append(hunk)
        if not hunks:
            raise DoesNotFit(f"{name}: {path}: binary diffs and changes of mode are not supported")
        diffs.append(FileDiff(name, path, hunks))
    if not diffs:
        raise DoesNotFit(f"{name} contains no diff")
    return diffs


def _parse_hunk(lines: list[bytes], at: int, name: str) -> tuple[Hunk, int]:
    numbers = re.match(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@", lines[at])
    if not numbers:
        raise DoesNotFit(f"{name}, line {at + 1}: not a hunk header")
    old_start, old_count, new_start, new_count = (1 if number is None else int(number) for number in numbers.groups())
    old: list[bytes] = []
    new: list[bytes] = []
    sides = {b" ": (old, new), b"-": (old,), b"+": (new,)}
    last = b""
    at += 1
    # Count lines as the header says, so that the `-- ` of a mail signature stays out of the hunk.
    while len(old) < old_count or len(new) < new_count or b"".join(lines[at : at + 1]).startswith(b"\\ No newline"):
        if at == len(lines):
            raise DoesNotFit(f"{name}: ends inside a hunk")
        sign, rest = lines[at][:1], lines[at][1:]
        if sign == b"\\":
            for side in sides.get(last, ()):
                side[-1] = side[-1].removesuffix(b"\n")
        elif sign in sides:
            for side in sides[sign]:
                side.append(rest)
        else:
            raise DoesNotFit(f"{name}, line {at + 1}: not a line of a hunk")
        last, at = sign, at + 1
    if (len(old), len(new)) != (old_count, new_count):
        raise DoesNotFit(f"{name}: a hunk before line {at + 1} does not have the lines that its header counts")
    return Hunk(old_start, old, new_start, new), at


def apply_diff(content: bytes, diff: FileDiff) -> bytes:
    lines, result, at = BytesIO(content).readlines(), [], 0
    for hunk in diff.hunks:
        start = hunk.old_start - 1 if hunk.old else hunk.old_start
        if start < at or lines[start : start + len(hunk.old)] != hunk.old:
            raise DoesNotFit(f"{diff.patch}: {diff.path} differs from what line {hunk.old_start} expects")
        result += lines[at:start] + hunk.new
        at = start + len(hunk.old)
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

    def diffs(self) -> list[FileDiff]:
        return [diff for patch in self.patches for diff in parse_patch(patch.read_bytes(), patch.name)]


def load_series() -> Series:
    for folder in PATCH_FOLDERS:
        if (found := folder / f"openrlhf-{OPENRLHF_VERSION}").is_dir():
            return Series(found)
    places = " or ".join(str(folder) for folder in PATCH_FOLDERS)
    raise UserError(f"no patches for openrlhf {OPENRLHF_VERSION} in {places}. Reinstall real_openrlhf.")


def file_states(root: Path, series: Series) -> dict[str, str]:
    """{path: BEFORE, AFTER or UNKNOWN} for every file that the series touches."""
    states = {}
    for path, known in series.fingerprints.items():
        found = sha256(root / path) if (root / path).is_file() else None
        states[path] = next((state for state in (AFTER, BEFORE) if known[state] == found), UNKNOWN)
    return states


def patched(root: Path, paths: Iterable[str], diffs: Iterable[FileDiff]) -> dict[str, bytes]:
    """The new content of each path, in memory."""
    contents = {path: (root / path).read_bytes() for path in paths}
    for diff in diffs:
        if diff.path in contents:
            contents[diff.path] = apply_diff(contents[diff.path], diff)
    return contents


def proven(root: Path, paths: set[str], series: Series, want: str) -> dict[str, bytes]:
    """The content of each path in the state `want`; raises if its hash is not that of files.json."""
    try:
        diffs = series.diffs()
        contents = patched(root, paths, diffs if want == AFTER else [diff.reverse() for diff in reversed(diffs)])
    except DoesNotFit as error:
        raise UserError(f"{error}. The patches and their files.json disagree: reinstall real_openrlhf.") from error
    for path, content in contents.items():
        if hashlib.sha256(content).hexdigest() != series.fingerprints[path][want]:
            raise UserError(f"patching {path} gives another file than files.json says. Reinstall real_openrlhf.")
    return contents


# The OpenRLHF to patch: a folder that contains openrlhf/, most often site-packages, found without an import


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
        with contextlib.suppress(OSError, UserError):
            files.wait_for_lock(folder)
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


# What the command does


def _move(root: Path | None = None, *, want: str, moved: str, already: str) -> int:
    """Bring every touched file to the state `want`; returns how many were not there yet."""
    series = load_series()
    root, foreign = find_target(root, series)
    with locked(root):
        states = file_states(root, series)
        paths = {path for path, state in states.items() if state != want}
        if paths:
            if foreign:
                raise UserError(foreign)
            refuse_unknown(root, states)
            write(root, proven(root, paths, series, want))
    print(f"{series.name}: {moved if paths else already} in {root} ({_size(series)})")
    return len(paths)


apply = partial(_move, want=AFTER, moved="applied", already="was applied already")
revert = partial(_move, want=BEFORE, moved="reverted", already="was not applied")  # byte-identical to the release


def export(folder: Path, root: Path | None = None) -> None:
    """Write a patched copy of openrlhf, and this package beside it, for Ray's working_dir on foreign clusters."""
    series = load_series()
    root, _ = find_target(root, series)
    folder = folder.expanduser().resolve()
    taken = [name for name in ("openrlhf", "real_openrlhf") if (folder / name).exists()]
    if taken:
        raise UserError(f"{folder / taken[0]} exists already. Delete it or name another folder.")
    refuse_unknown(root, file_states(root, series))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            half, skip = Path(scratch), shutil.ignore_patterns("__pycache__", "*.real_openrlhf-tmp")
            shutil.copytree(root / "openrlhf", half / "openrlhf", ignore=skip)
            shutil.copytree(PACKAGE, half / "real_openrlhf", ignore=skip)
            shutil.copytree(series.folder, half / "real_openrlhf/patches" / series.name, dirs_exist_ok=True)
            paths = {path for path, state in file_states(half, series).items() if state == BEFORE}
            write(half, proven(half, paths, series, AFTER))
            for name in ("real_openrlhf", "openrlhf"):
                os.rename(half / name, folder / name)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or folder}: {error.strerror}. Name another folder.") from error
    print(f"{series.name}: exported to {folder}")


def status(root: Path | None = None) -> int:
    """Print what state the files are in; 0 applied, 1 not applied, 2 unknown."""
    series = load_series()
    root, _ = find_target(root, series)
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
    spec = importlib.util.find_spec("openrlhf")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"openrlhf cannot be imported by {sys.executable} on {_node()}. Install it on that node.")
    package = Path(spec.submodule_search_locations[0])
    states = file_states(package.parent, series)
    wrong = [path for path, state in states.items() if state != AFTER]
    if wrong:
        apply = [sys.executable, "-m", "real_openrlhf.patching", "apply", "--root", str(package.parent)]
        raise UserError(
            f"{package} on {_node()} does not carry the patches {series.name} "
            f"({len(wrong)} of {len(states)} files differ, such as {wrong[0]}). On that node run "
            f"`{shlex.join(apply)}` and start Ray again."
        )


def _node() -> str:
    name = socket.gethostname()
    try:
        return f"node {name} ({socket.gethostbyname(name)})"
    except OSError:
        return f"node {name}"


def configure(parser: argparse.ArgumentParser) -> None:
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--root", type=path_of, help="folder that contains openrlhf/ (default: the installed one)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("status", parents=[where], help="exit 0: applied, 1: not applied, 2: unknown")
    actions.add_parser("apply", parents=[where], help="apply the series, all or nothing")
    actions.add_parser("revert", parents=[where], help="restore the release, byte for byte")
    exporting = actions.add_parser("export", parents=[where], help="write a patched copy for Ray's working_dir")
    exporting.add_argument("folder", type=path_of, metavar="DIR")


def run(args: argparse.Namespace) -> int:
    if args.action == "status":
        return status(args.root)
    if args.action == "export":
        export(args.folder, args.root)
    else:
        (apply if args.action == "apply" else revert)(args.root)
    return 0


if __name__ == "__main__":
    from real_openrlhf.cli import main

    sys.exit(main(["patch", *sys.argv[1:]]))
