"""A reader and applier of unified diffs that is exact, without fuzz or offsets, and works on bytes.

It knows changes of text files, which is all that the series has. Anything else (a rename, a binary file, a torn patch)
comes out as other bytes than files.json records, and is refused there.
"""

import re
from dataclasses import dataclass

FILE = re.compile(rb"diff --git a/\S+ b/(\S+)\n")
HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
NO_NEWLINE = b"\\ No newline"


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
    """A diff was held against a file that it was not made for."""


def _lines(content: bytes) -> list[bytes]:
    """Lines as diff counts them: split at newlines only, line ends kept."""
    return re.findall(rb"[^\n]*\n|[^\n]+", content)


def parse_patch(content: bytes, name: str) -> list[FileDiff]:
    """Read a `git format-patch` file; every text before the first `diff --git` line is its header."""
    lines, at = _lines(content), 0
    diffs: list[FileDiff] = []
    while at < len(lines):
        if file := FILE.match(lines[at]):
            diffs.append(FileDiff(name, file[1].decode(errors="backslashreplace"), []))
        numbers = HUNK.match(lines[at])
        at += 1
        if numbers and diffs:
            old_start, old_count, new_start, new_count = (int(number or 1) for number in numbers.groups())
            old, new, at = _sides(lines, at, old_count, new_count)
            diffs[-1].hunks.append(Hunk(old_start, old, new_start, new))
    return diffs


def _sides(lines: list[bytes], at: int, old_count: int, new_count: int) -> tuple[list[bytes], list[bytes], int]:
    """The old and the new lines of the hunk whose first line is at `at`, and where it ends.

    Counting, not looking for an end, keeps the `-- ` of a mail signature out of the hunk.
    """
    old: list[bytes] = []
    new: list[bytes] = []
    last = b""
    while at < len(lines) and (len(old) < old_count or len(new) < new_count or lines[at].startswith(NO_NEWLINE)):
        sign, rest = lines[at][:1], lines[at][1:]
        if sign == b"\\":
            for side in {b" ": (old, new), b"-": (old,), b"+": (new,)}.get(last, ()):
                side[-1] = side[-1].removesuffix(b"\n")
        else:
            if sign != b"+":
                old.append(rest)
            if sign != b"-":
                new.append(rest)
        last, at = sign, at + 1
    return old, new, at


def apply_diff(content: bytes, diff: FileDiff) -> bytes:
    """The file after the diff."""
    lines, result, at = _lines(content), [], 0
    for hunk in diff.hunks:
        start = hunk.old_start - 1 if hunk.old else hunk.old_start
        if start < at or lines[start : start + len(hunk.old)] != hunk.old:
            raise DoesNotFit(f"{diff.patch}: {diff.path} differs from what line {hunk.old_start} expects")
        result += lines[at:start] + hunk.new
        at = start + len(hunk.old)
    return b"".join(result + lines[at:])
