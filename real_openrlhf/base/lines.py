"""Lines for a terminal of 80 columns, and short forms of paths."""

import os
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

WIDTH = 80
HANGING = " " * 6  # continues a line; `rejoined` undoes it


def wrapped(text: str, first: str = "") -> str:
    """The text in lines of at most WIDTH characters. A longer word, such as a path, stays whole."""
    lines = textwrap.wrap(
        f"{first}{text}", WIDTH, subsequent_indent=HANGING, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines) or first


def rejoined(text: str) -> str:
    return text.replace(f"\n{HANGING}", " ")


def table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Names and their descriptions in two columns; a long description goes on below itself."""
    rows = [*rows]
    width = max(len(name) for name, _ in rows)
    for name, about in rows:
        indent = " " * (width + 4)
        yield textwrap.fill(f"  {name:{width}}  {about}", WIDTH - 1, subsequent_indent=indent, break_on_hyphens=False)


def short_path(path: str) -> str:
    """A path below the current folder or the home folder, in the form that a shell would take; others unchanged."""
    for folder, sign in ((os.getcwd(), ""), (os.path.expanduser("~"), "~/")):
        if path.startswith("/") and Path(path).is_relative_to(folder) and path != folder:
            return sign + str(Path(path).relative_to(folder))
    return path
