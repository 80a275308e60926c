"""The patch tool: puts the series in patches/ onto an installed OpenRLHF, and takes it off again.

Standard library only, and OpenRLHF is found without being imported, so that it also runs where an environment is
only half built. What state a file is in follows from its SHA-256 alone: there is no state file that could drift.
See patches/README.md for why the series is applied on disk, and for `git apply`, hard links and other traps.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import sys
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.errors import UserError

PACKAGE = Path(__file__).resolve().parent
PATCH_FOLDERS = (PACKAGE / "patches", PACKAGE.parent / "patches")  # in a wheel, in a checkout
REINSTALL = f"`pip install --force-reinstall --no-deps openrlhf=={OPENRLHF_VERSION}`"

BEFORE, AFTER, UNKNOWN = "before", "after", "unknown"


# The patches: a unified-diff reader and applier that is exact (no fuzz, no offsets) and works on bytes.


@dataclass(frozen=True)
class Hunk:
    old_start: int
    old: list[bytes]
    new_start: int
    new: list[bytes]


@dataclass(frozen=True)
class FileDiff:
    """What one patch does to one file; `creates` and `deletes` say that the file is absent before or after."""

    patch: str
    path: str
    hunks: list[Hunk]
    creates: bool = False
    deletes: bool = False

    def reverse(self) -> "FileDiff":
        hunks = [Hunk(hunk.new_start, hunk.new, hunk.old_start, hunk.old) for hunk in self.hunks]
        return FileDiff(self.patch, self.path, hunks, creates=self.deletes, deletes=self.creates)


class DoesNotFit(Exception):
    """A diff was held against a file that it was not made for, or is of a kind that the applier does not know."""


def _lines(content: bytes) -> list[bytes]:
    """Lines as diff counts them: split at newlines only, line ends kept."""
    return re.findall(rb"[^\n]*\n|[^\n]+", content)


def parse_patch(content: bytes, name: str) -> list[FileDiff]:
    """Read a `git format-patch` file; every text before the first `diff --git` line is its header."""
    lines, at, diffs = _lines(content), 0, []
    while at < len(lines):
        header = re.match(rb"diff --git a/(\S+) b/(\S+)\n", lines[at])
        at += 1
        if not header:
            continue
        path = header[2].decode()
        if header[1] != header[2] or not path.startswith("openrlhf/") or ".." in path.split("/"):
            raise DoesNotFit(f"{name}: {path}: renames and files outside openrlhf/ are not supported")
        creates = deletes = False
        while at < len(lines) and not lines[at].startswith((b"@@ ", b"diff --git ")):
            creates |= lines[at].startswith(b"new file mode ")
            deletes |= lines[at].startswith(b"deleted file mode ")
            at += 1
        hunks = []
        while at < len(lines) and lines[at].startswith(b"@@ "):
            hunk, at = _parse_hunk(lines, at, name)
            hunks.append(hunk)
        if not (hunks or creates or deletes):
            raise DoesNotFit(f"{name}: {path}: binary diffs and changes of mode are not supported")
        diffs.append(FileDiff(name, path, hunks, creates, deletes))
    if not diffs:
        raise DoesNotFit(f"{name} contains no diff")
    return diffs


def _parse_hunk(lines: list[bytes], at: int, name: str) -> tuple[Hunk, int]:
    numbers = re.match(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", lines[at])
    if not numbers:
        raise DoesNotFit(f"{name}, line {at + 1}: not a hunk header")
    old_start, old_count, new_start, new_count = (1 if number is None else int(number) for number in numbers.groups())
    old: list[bytes] = []
    new: list[bytes] = []
    last = b""
    at += 1
    # Counting, not looking for an end, keeps the `-- ` of a mail signature out of the hunk.
    while len(old) < old_count or len(new) < new_count or b"".join(lines[at : at + 1]).startswith(b"\\ No newline"):
        if at == len(lines):
            raise DoesNotFit(f"{name}: ends inside a hunk")
        sign, rest = lines[at][:1], lines[at][1:]
        if sign == b"\\":
            for side in {b" ": (old, new), b"-": (old,), b"+": (new,)}.get(last, ()):
                side[-1] = side[-1].removesuffix(b"\n")
        elif sign in (b" ", b"-", b"+"):
            if sign != b"+":
                old.append(rest)
            if sign != b"-":
                new.append(rest)
        else:
            raise DoesNotFit(f"{name}, line {at + 1}: not a line of a hunk")
        last, at = sign, at + 1
    if (len(old), len(new)) != (old_count, new_count):
        raise DoesNotFit(f"{name}: a hunk before line {at + 1} does not have the lines that its header counts")
    return Hunk(old_start, old, new_start, new), at


def apply_diff(content: bytes | None, diff: FileDiff) -> bytes | None:
    """The file after the diff; None stands for a file that does not exist."""
    if (content is None) != diff.creates:
        raise DoesNotFit(f"{diff.patch}: {diff.path} {'already exists' if diff.creates else 'is missing'}")
    lines, result, at = _lines(content or b""), [], 0
    for hunk in diff.hunks:
        start = hunk.old_start - 1 if hunk.old else hunk.old_start
        if start < at or lines[start : start + len(hunk.old)] != hunk.old:
            raise DoesNotFit(f"{diff.patch}: {diff.path} differs from what line {hunk.old_start} expects")
        result += lines[at:start] + hunk.new
        at = start + len(hunk.old)
    result += lines[at:]
    if diff.deletes and result:
        raise DoesNotFit(f"{diff.patch}: {diff.path} has more lines than the patch deletes")
    return None if diff.deletes else b"".join(result)


# The series: the patches for one release, and the SHA-256 of each touched file before and after.


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
    def fingerprints(self) -> dict[str, dict[str, str | None]]:
        """{path: {"before": sha256 or None, "after": sha256 or None}}, None for a file that does not exist."""
        try:
            return json.loads((self.folder / "files.json").read_text())
        except FileNotFoundError:
            raise UserError(f"{self.folder} has no files.json. Write it: `real-openrlhf patch record`.") from None

    @property
    def sha256(self) -> str:
        """One number that says which patched OpenRLHF a run used."""
        return _sha256(json.dumps(self.fingerprints, sort_keys=True).encode())

    def diffs(self) -> list[FileDiff]:
        return [diff for patch in self.patches for diff in parse_patch(patch.read_bytes(), patch.name)]


def load_series() -> Series:
    for folder in PATCH_FOLDERS:
        series = Series(folder / f"openrlhf-{OPENRLHF_VERSION}")
        if series.folder.is_dir():
            return series
    places = " or ".join(str(folder) for folder in PATCH_FOLDERS)
    raise UserError(f"no patches for openrlhf {OPENRLHF_VERSION} in {places}. Reinstall real_openrlhf.")


def _sha256(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None


def file_states(root: Path, series: Series) -> dict[str, str]:
    """{path: BEFORE, AFTER or UNKNOWN} for every file that the series touches."""
    states = {}
    for path, known in series.fingerprints.items():
        found = _sha256(_read(root / path))
        states[path] = AFTER if found == known["after"] else BEFORE if found == known["before"] else UNKNOWN
    return states


def _transformed(root: Path, paths: set[str], diffs: list[FileDiff], series: Series, want: str) -> dict:
    """The new content of each path, in memory, and proven against the recorded hash."""
    contents = {path: _read(root / path) for path in paths}
    try:
        for diff in diffs:
            if diff.path in contents:
                contents[diff.path] = apply_diff(contents[diff.path], diff)
    except DoesNotFit as error:
        raise UserError(f"{error}. The patches and their files.json disagree: reinstall real_openrlhf.") from error
    for path, content in contents.items():
        if _sha256(content) != series.fingerprints[path][want]:
            raise UserError(f"patching {path} gives another file than files.json says. Reinstall real_openrlhf.")
    return contents


# The target: a folder that contains openrlhf/, most often site-packages.


@dataclass(frozen=True)
class Target:
    """`foreign` says why this OpenRLHF is not ours to change, and how its owner applies the series instead."""

    root: Path
    version: str | None = None
    foreign: str | None = None
    recorded: tuple[importlib.metadata.PackagePath, ...] = ()


def find_target(root: Path | None, series: Series) -> Target:
    if root is not None:
        root = root.expanduser().resolve()
        if not (root / "openrlhf").is_dir():
            raise UserError(f"{root} contains no folder openrlhf. Give --root the folder that contains it.")
        found = list(importlib.metadata.distributions(name="openrlhf", path=[str(root)]))
        if not found:
            return Target(root)
        distribution = found[0]
    else:
        try:
            distribution = importlib.metadata.distribution("openrlhf")
        except importlib.metadata.PackageNotFoundError:
            raise UserError(
                f"openrlhf is not installed for {sys.executable}. Install openrlhf=={OPENRLHF_VERSION} "
                "(examples/scripts/setup_env.sh does it), or name a folder with --root."
            ) from None
        root = Path(distribution.locate_file("")).resolve()
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
    return Target(root, distribution.version, foreign, tuple(distribution.files or ()))


def _refuse_other_version(target: Target) -> None:
    if target.version not in (None, OPENRLHF_VERSION):
        raise UserError(
            f"{target.root} has openrlhf {target.version}, the patches are for {OPENRLHF_VERSION}. "
            f"Install that: `pip install openrlhf=={OPENRLHF_VERSION}`."
        )


def _refuse_unknown(target: Target, states: dict[str, str]) -> None:
    unknown = [path for path, state in states.items() if state == UNKNOWN]
    if unknown:
        raise UserError(
            f"changed by something else in {target.root}, or patched by another series: {', '.join(unknown)}. "
            f"Nothing was written. Reinstall openrlhf ({REINSTALL}), then apply again."
        )


def _changed_outside_the_series(target: Target, series: Series) -> list[str]:
    """Files of the package that differ from what pip installed though the series does not touch them."""
    changed = []
    for entry in target.recorded:
        path = entry.as_posix()
        if path.startswith("openrlhf/") and path.endswith(".py") and entry.hash and path not in series.fingerprints:
            content = _read(target.root / path)
            digest = urlsafe_b64encode(hashlib.sha256(content or b"").digest()).rstrip(b"=").decode()
            if entry.hash.mode == "sha256" and digest != entry.hash.value:
                changed.append(path)
    return changed


# Writing: everything is computed before the first byte is written, and each file is replaced as a whole.


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
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


def _write(root: Path, contents: dict[str, bytes | None]) -> None:
    """All or nothing: staging takes the room and the permissions, and a failure puts the originals back."""
    originals = {path: _read(root / path) for path in contents}
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
            if _read(root / path) != originals[path]:
                if originals[path] is not None:
                    _stage(root / path, originals[path])
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


# The commands.


def _move(root: Path | None, want: str) -> tuple[Target, Series, int]:
    """Bring every touched file to the state `want`; files that are there already stay as they are."""
    series = load_series()
    target = find_target(root, series)
    _refuse_other_version(target)
    with _locked(target.root):
        states = file_states(target.root, series)
        if all(state == want for state in states.values()):
            return target, series, 0
        if target.foreign:
            raise UserError(target.foreign)
        _refuse_unknown(target, states)
        diffs = series.diffs()
        if want == BEFORE:
            diffs = [diff.reverse() for diff in reversed(diffs)]
        paths = {path for path, state in states.items() if state != want}
        contents = _transformed(target.root, paths, diffs, series, want)
        _write(target.root, contents)
    return target, series, len(contents)


def apply(root: Path | None = None) -> int:
    """Apply the series; returns how many files changed."""
    target, series, changed = _move(root, AFTER)
    print(f"{series.name}: {'applied' if changed else 'was applied already'} in {target.root} ({_size(series)})")
    return changed


def revert(root: Path | None = None) -> int:
    """Take the series off, byte-identical to the release; returns how many files changed."""
    target, series, changed = _move(root, BEFORE)
    print(f"{series.name}: {'reverted' if changed else 'was not applied'} in {target.root}")
    return changed


def export(folder: Path, root: Path | None = None) -> None:
    """Write a patched copy of openrlhf, and this package beside it, for Ray's working_dir on foreign clusters."""
    series = load_series()
    target = find_target(root, series)
    _refuse_other_version(target)
    folder = folder.expanduser().resolve()
    taken = [name for name in ("openrlhf", "real_openrlhf") if (folder / name).exists()]
    if taken:
        raise UserError(f"{folder / taken[0]} exists already. Delete it or name another folder.")
    _refuse_unknown(target, file_states(target.root, series))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            half, skip = Path(scratch), shutil.ignore_patterns("__pycache__", "*.real_openrlhf-tmp")
            shutil.copytree(target.root / "openrlhf", half / "openrlhf", ignore=skip)
            shutil.copytree(PACKAGE, half / "real_openrlhf", ignore=skip)
            shutil.copytree(series.folder, half / "real_openrlhf/patches" / series.name, dirs_exist_ok=True)
            paths = {path for path, state in file_states(half, series).items() if state == BEFORE}
            _write(half, _transformed(half, paths, series.diffs(), series, AFTER))
            for name in ("real_openrlhf", "openrlhf"):
                os.rename(half / name, folder / name)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or folder}: {error.strerror}. Name another folder.") from error
    print(f"{series.name}: exported to {folder}")


def status(root: Path | None = None) -> int:
    """Print what state the files are in; 0 applied, 1 not applied, 2 unknown."""
    series = load_series()
    target = find_target(root, series)
    _refuse_other_version(target)
    states = file_states(target.root, series)
    kinds = set(states.values())
    word, code = (
        ("unknown", 2)
        if UNKNOWN in kinds
        else ("applied", 0)
        if kinds == {AFTER}
        else ("not applied", 1)
        if kinds == {BEFORE}
        else ("partly applied: run apply or revert to finish", 1)
    )
    print(f"{series.name}: {word} in {target.root} ({_size(series)})")
    for path, state in states.items():
        if state == UNKNOWN:
            gone = "" if (target.root / path).exists() else " (missing)"
            print(f"  changed by something else, or by another series: {path}{gone}")
    if code == 2:
        print(f"  to start afresh: {REINSTALL}, then `real-openrlhf patch apply`")
    for path in _changed_outside_the_series(target, series):
        print(f"  note: {path} differs from the release, and no patch of this series touches it")
    return code


def record(root: Path) -> None:
    """Write the series' files.json from an unpatched release; for whoever edits the patches."""
    series = load_series()
    target = find_target(root, series)
    _refuse_other_version(target)
    try:
        diffs = series.diffs()
        before = {diff.path: _read(target.root / diff.path) for diff in diffs}
        after = dict(before)
        for diff in diffs:
            after[diff.path] = apply_diff(after[diff.path], diff)
    except DoesNotFit as error:
        raise UserError(f"{error}. Is {target.root} the unpatched release {OPENRLHF_VERSION}?") from error
    fingerprints = {path: {"before": _sha256(before[path]), "after": _sha256(after[path])} for path in sorted(before)}
    (series.folder / "files.json").write_text(json.dumps(fingerprints, indent=1) + "\n")
    print(f"{series.name}: recorded {_size(series)}")


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
        raise UserError(
            f"{package} on {_node()} does not carry the patches {series.name} "
            f"({len(wrong)} of {len(states)} files differ, such as {wrong[0]}). On that node run "
            f"`{sys.executable} -m real_openrlhf.patching apply --root {package.parent}` and start Ray again."
        )


def _node() -> str:
    name = socket.gethostname()
    try:
        return f"node {name} ({socket.gethostbyname(name)})"
    except OSError:
        return f"node {name}"


def configure(parser: argparse.ArgumentParser) -> None:
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--root", type=Path, help="folder that contains openrlhf/ (default: the installed one)")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("status", parents=[where], help="exit 0: applied, 1: not applied, 2: unknown")
    actions.add_parser("apply", parents=[where], help="apply the series, all or nothing")
    actions.add_parser("revert", parents=[where], help="take it off, byte-identical to the release")
    exporting = actions.add_parser("export", parents=[where], help="write a patched copy for Ray's working_dir")
    exporting.add_argument("folder", type=Path, metavar="DIR")
    recording = actions.add_parser("record", help="for maintainers: write files.json from an unpatched release")
    recording.add_argument("--root", type=Path, required=True, help="folder that contains the unpatched openrlhf/")


def run(args: argparse.Namespace) -> int:
    if args.action == "status":
        return status(args.root)
    if args.action == "export":
        export(args.folder, args.root)
    else:
        {"apply": apply, "revert": revert, "record": record}[args.action](args.root)
    return 0


if __name__ == "__main__":
    from real_openrlhf.cli import main

    sys.exit(main(["patch", *sys.argv[1:]]))
