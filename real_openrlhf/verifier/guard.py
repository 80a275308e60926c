"""Answers that no gold can equal, refused by their shape before anything computes with them."""

import re

from real_openrlhf.verifier.reading.tex import FUNCTIONS

MAX_LENGTH = 1_000
_MAX_NESTING = 24
_WORD = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{3,}(?![a-zA-Z])")
_TEXT = re.compile(r"\\text\{[^{}]*\}")
_BRACKET = re.compile(r"\\.|[{}()\[\]]", re.DOTALL)


def too_deep(answer: str) -> bool:
    """Whether brackets nest too deep. Callers ask this before parsing, because the parsers recurse into brackets."""
    depth = 0
    for bracket in _BRACKET.finditer(answer):
        depth += {"{": 1, "(": 1, "[": 1, "}": -1, ")": -1, "]": -1}.get(bracket[0], 0)
        if depth > _MAX_NESTING:
            return True
    return False


def prose(gold: str) -> bool:
    """Whether a gold is prose with formulas in it; only the same text can be recognised as equal."""
    words = [word for word in _WORD.findall(_TEXT.sub(" ", gold)) if word not in FUNCTIONS]
    return len(words) >= 3 and not gold[:1].isdigit()
