"""Answers that are equal to the gold and still no answers, for those who know the question: copied or unevaluated."""

import contextlib
import math
import re
from collections.abc import Callable
from functools import lru_cache

from same_answer import compare
from same_answer.arithmetic import is_number
from same_answer.forms import contains, form, form_of, simple, work
from same_answer.reading.cutting import RELATIONS, split, trimmed
from same_answer.reading.tex import FUNCTIONS, Tokens, clean, is_recurring, tokens, untokenize
from same_answer.reading.tree import (
    Answer,
    Call,
    Expr,
    Number,
    Relation,
    Symbol,
    core,
    letters_of,
    names_of,
    quantity,
)
from same_answer.reading.whole import answer_of, read

COPIED, UNEVALUATED = "copied", "unevaluated"
CONVENTIONS = (COPIED, UNEVALUATED)
Equal = Callable[[str, str], bool]
Formulas = dict[str, Expr | None]
_LONGEST_PROMPT, _LONGEST_FORMULA = 8_000, 400  # characters, tokens
_FORMULA = re.compile(
    r"(?<!\\)\$\$?(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|\\begin\{(?:align|equation|gather)\w*\*?\}(.+?)\\end\{",
    re.DOTALL,
)
_PROSE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}(?![a-zA-Z(_^{])|[.?!:](?:\s|$)")  # words between unmarked formulas
_OPERATIONS = {*FUNCTIONS, "mod", "floor", "ceil", "abs", "factorial", "root"}


def broken(gold: str, answer: str, prompt: str, allowed: tuple[str, ...], equal: Equal) -> str:
    """The convention that a right answer breaks, both as they are written; an empty text if it breaks none.

    `equal` says whether two texts have one value.
    """
    if not prompt:
        return ""
    value, parts = core(read(answer)), tokens(clean(answer))
    formulas = {} if COPIED in allowed else _formulas(prompt[-_LONGEST_PROMPT:])
    if _is_related(parts) and not _is_related(tokens(clean(gold))) and untokenize(parts) in formulas:
        return COPIED  # f(-1)=0 for 0
    if compare.same(gold, answer, written=True) and not (is_recurring(answer) and not is_recurring(gold)):
        return ""
    if UNEVALUATED not in allowed and _is_plain(core(read(gold))) and _is_operation(value):
        return UNEVALUATED
    sides = value.value.sides if isinstance(value.value, Relation) and value.value.sign == "=" else (value,)
    return COPIED if formulas and all(_is_copied(side, gold, formulas, equal) for side in sides) else ""


def _is_copied(answer: Answer, gold: str, formulas: Formulas, equal: Equal) -> bool:
    """Whether a right answer is a formula of the question, with a part that changes nothing, or another formula of its
    value that leaves as much work, and more than the gold."""
    if _is_whole(answer):
        return False
    value, wanted = quantity(answer), quantity(core(read(gold)))
    if form_of(answer) in formulas:
        return True
    if value is None:
        return False
    bare, least = simple(value), work(simple(wanted)) if wanted else math.inf

    def resembles(formula: Expr) -> bool:
        if contains(value, formula):
            return True
        if is_number(answer):  # a fraction, which may be the gold in lower terms
            return False
        other = simple(formula)
        return form(bare) == form(other) or least < work(bare) >= work(other)

    return any(
        letters_of(formula) == letters_of(value) and resembles(formula) and equal(text, gold)
        for text, formula in formulas.items()
        if isinstance(formula, Call) and not _is_whole(Answer(formula))
    )


def _is_related(parts: Tokens) -> bool:
    return any(token.text in RELATIONS for token in parts)


@lru_cache(maxsize=256)
def _formulas(prompt: str) -> Formulas:
    """The formulas of a question, and the sides and items of each: as text with its tree, and in one spelling."""
    marked = [next(filter(None, found.groups())) for found in _FORMULA.finditer(prompt)]
    found: Formulas = {}
    for text in (*marked, *_PROSE.split(_FORMULA.sub(" . ", prompt))):
        parts = tokens(clean(text))
        pieces = (parts, *split(parts, ",", ";", "&", r"\\"), *split(parts, *RELATIONS, ",", ";", "&", r"\\"))
        for piece in {trimmed(piece) for piece in pieces}:
            if 0 < len(piece) < _LONGEST_FORMULA:
                with contextlib.suppress(Exception):  # a prompt may hold anything, such as the code of a figure
                    answer = core(answer_of(piece))
                    found |= {form_of(answer): None, untokenize(piece): quantity(answer)}
    return found


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
