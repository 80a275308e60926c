"""Answers that are equal to the gold and still no answers, for those who know the question: copied or unevaluated."""

import contextlib
import re
from functools import lru_cache

from real_openrlhf.verifier import compare
from real_openrlhf.verifier.arithmetic import is_number
from real_openrlhf.verifier.compare import form_of
from real_openrlhf.verifier.reading.cutting import RELATIONS, split, trimmed
from real_openrlhf.verifier.reading.tex import FUNCTIONS, Tokens, clean, is_recurring, tokens, untokenize
from real_openrlhf.verifier.reading.tree import Answer, Call, Number, Relation, Symbol, core, names_of, quantity
from real_openrlhf.verifier.reading.whole import answer_of, read

COPIED, UNEVALUATED = "copied", "unevaluated"
CONVENTIONS = (COPIED, UNEVALUATED)
_LONGEST_PROMPT, _LONGEST_FORMULA = 8_000, 400  # characters, tokens
_FORMULA = re.compile(
    r"(?<!\\)\$\$?(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|\\begin\{(?:align|equation|gather)\w*\*?\}(.+?)\\end\{",
    re.DOTALL,
)
_PROSE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}(?![a-zA-Z(_^{])|[.?!:](?:\s|$)")  # words between unmarked formulas
_OPERATIONS = {*FUNCTIONS, "mod", "floor", "ceil", "abs", "factorial", "root"}


def broken(gold: str, answer: str, prompt: str, allowed: tuple[str, ...] = ()) -> str:
    """The convention that a right answer breaks, both as they are written; an empty text if it breaks none."""
    if not prompt:
        return ""
    value, parts = core(read(answer)), tokens(clean(answer))
    prompt = "" if COPIED in allowed else prompt[-_LONGEST_PROMPT:]
    if _is_related(parts) and not _is_related(tokens(clean(gold))) and untokenize(parts) in _formulas(prompt):
        return COPIED  # f(-1)=0 for 0
    if compare.same(gold, answer, written=True) and not (is_recurring(answer) and not is_recurring(gold)):
        return ""
    if UNEVALUATED not in allowed and _is_plain(core(read(gold))) and _is_operation(value):
        return UNEVALUATED
    return COPIED if not _is_whole(value) and form_of(value) in _formulas(prompt) else ""


def _is_related(parts: Tokens) -> bool:
    return any(token.text in RELATIONS for token in parts)


@lru_cache(maxsize=256)
def _formulas(prompt: str) -> frozenset[str]:
    """The formulas of a question, and the sides and items of each: what they say in one spelling, and equations."""
    marked = [next(filter(None, found.groups())) for found in _FORMULA.finditer(prompt)]
    found = set()
    for text in (*marked, *_PROSE.split(_FORMULA.sub(" . ", prompt))):
        parts = tokens(clean(text))
        pieces = (parts, *split(parts, ",", ";", "&", r"\\"), *split(parts, *RELATIONS, ",", ";", "&", r"\\"))
        for piece in {trimmed(piece) for piece in pieces}:
            if 0 < len(piece) < _LONGEST_FORMULA:
                with contextlib.suppress(Exception):  # a prompt may hold anything, such as the code of a figure
                    found |= {form_of(core(answer_of(piece))), untokenize(piece)}
    return frozenset(found)


def _is_whole(answer: Answer) -> bool:
    """Whether this is a whole number, which nobody has to evaluate."""
    value = quantity(answer)
    if isinstance(value, Call) and value.name == "-":
        value = value.args[0]
    return isinstance(value, Number) and value.value.denominator == 1


def _is_plain(answer: Answer) -> bool:
    value = quantity(answer)
    return value is not None and is_number(answer) and not names_of(value, Call) & {"^", *_OPERATIONS}


def _is_operation(answer: Answer) -> bool:
    value = quantity(core(answer.value.sides[1]) if isinstance(answer.value, Relation) else answer)
    return value is not None and bool(names_of(value, Call) & _OPERATIONS or names_of(value, Symbol))
