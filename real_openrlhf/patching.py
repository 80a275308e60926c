"""The patch tool: puts the series in patches/ onto an installed OpenRLHF, and takes it off again.

Standard library only, and OpenRLHF is found without being imported, so that it also runs where an environment is
only half built. What state a file is in follows from its SHA-256 alone: there is no state file that could drift.
See patches/README.md for why the series is applied on disk, and for `git apply`, hard links and other traps.
"""

import argparse
import importlib.util
import os
import shutil
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import path_of
from real_openrlhf.patch_tool.series import AFTER, BEFORE, PACKAGE, UNKNOWN, Series, file_states, load_series, proven
from real_openrlhf.patch_tool.target import REINSTALL, find_target, locked, refuse_unknown, write


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
