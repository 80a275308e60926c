"""The patches for one release, and the SHA-256 of each touched file before and after. No other state is kept."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf import OPENRLHF_VERSION
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import sha256
from real_openrlhf.patch_tool.unified_diff import DoesNotFit, FileDiff, apply_diff, parse_patch

PACKAGE = Path(__file__).resolve().parents[1]
PATCH_FOLDERS = (PACKAGE / "patches", PACKAGE.parent / "patches")  # in a wheel, in a checkout

BEFORE, AFTER, UNKNOWN = "before", "after", "unknown"


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
