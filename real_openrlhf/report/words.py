"""What a run folder says of itself, made fit for labels, tables and a page: short, on one line, without controls."""

import re
from typing import Any

from real_openrlhf.terminal import plain

LABEL, LONGEST, DEEPEST, MOST = 120, 400, 6, 2000  # letters of a label and of a word, levels and entries of an object
EXACT = 1 << 53


def word(value: object, longest: int = LABEL) -> str:
    text = (value if isinstance(value, str) else str(tame(value)))[: 2 * longest]
    text = plain(" ".join(text.split()))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def tame(value: Any, depth: int = 0) -> Any:
    """The same JSON with such words, and numbers that a float can hold."""
    if isinstance(value, dict):
        return (
            {} if depth > DEEPEST else {word(key): tame(item, depth + 1) for key, item in list(value.items())[:MOST]}
        )
    if isinstance(value, list):
        return [] if depth > DEEPEST else [tame(item, depth + 1) for item in value[:MOST]]
    if isinstance(value, str):
        return word(value, LONGEST)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > EXACT:
        return "a very large number"
    return value


def no_tags(markdown: str) -> str:
    """A viewer may show Markdown as a page."""
    return re.sub(r"<(?=[a-zA-Z/!?])", "&lt;", markdown)


def no_formula(cell: str) -> str:
    """A spreadsheet computes what begins with these."""
    return f"'{cell}" if cell[:1] in ("=", "+", "@") or (cell[:1] == "-" and cell[1:2].isalpha()) else cell
