"""A reader and applier of unified diffs that is exact, without fuzz or offsets, and works on bytes."""

import re
from dataclasses import dataclass
from io import BytesIO  # its lines are diff's: split at newlines only, line ends kept


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
