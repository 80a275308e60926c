"""Answers that are equal to the gold and still no answers, for those who know the question: copied or unevaluated."""

import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from same_answer import compare
from same_answer.arithmetic import NoFraction, exact, is_number
from same_answer.reading.answer_parser import answer_of, parse_answer
from same_answer.reading.cutting import RELATIONS, split, trimmed
from same_answer.reading.tex import FUNCTIONS, Tokens, clean, is_recurring, tokens, untokenize
from same_answer.reading.tree import (
    FLAT,
    Answer,
    Call,
    Expr,
    Number,
    Relation,
    Symbol,
    core,
    form,
    form_of,
    letters_of,
    names_of,
    parts,
    quantity,
)

COPIED, UNEVALUATED = "copied", "unevaluated"
CONVENTIONS = (COPIED, UNEVALUATED)
Equal = Callable[[str, str], bool]
Formulas = dict[str, Expr | None]
_LONGEST_PROMPT, _LONGEST_FORMULA = 8_000, 400  # characters, tokens
FORMULA = re.compile(
    r"(?<!\\)\$\$?(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]|\\begin\{(?:align|equation|gather)\w*\*?\}(.+?)\\end\{",
    re.DOTALL,
)
_PROSE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}(?![a-zA-Z(_^{])|[.?!:](?:\s|$)")  # words between unmarked formulas
_FORM = re.compile(  # a question that asks for another form of a number
    r"\b(?:decimals?|percent\w*|fractions?|mixed|simpl\w*|reduc\w*|lowest|convert\w*|express\w*|(?:re)?write|form)\b",
    re.IGNORECASE,
)
_FUNCTION = 3  # operations: a sine is more work than a sum
_OPERATIONS = {*FUNCTIONS, "mod", "floor", "ceil", "abs", "factorial", "root"}


def broken(gold: str, answer: str, prompt: str, allowed: tuple[str, ...], equal: Equal) -> str:
    """The convention that a right answer breaks, both as they are written; an empty text if it breaks none.

    `equal` says whether two texts have one value.
    """
    if not prompt:
        return ""
    value, text = core(parse_answer(answer)), tokens(clean(answer))
    formulas = {} if COPIED in allowed else _formulas(prompt[-_LONGEST_PROMPT:])
    if _is_related(text) and not _is_related(tokens(clean(gold))) and untokenize(text) in formulas:
        return COPIED  # f(-1)=0 for 0
    if compare.same(gold, answer, written=True) and not (is_recurring(answer) and not is_recurring(gold)):
        return ""
    if UNEVALUATED not in allowed and _is_plain(core(parse_answer(gold))) and _is_operation(value):
        return UNEVALUATED
    sides = value.value.sides if isinstance(value.value, Relation) and value.value.sign == "=" else (value,)
    asked = _FORM.search(prompt) is not None
    return COPIED if formulas and all(_is_copied(side, gold, formulas, equal, asked) for side in sides) else ""


def _is_copied(answer: Answer, gold: str, formulas: Formulas, equal: Equal, form_asked: bool) -> bool:
    """Whether a right answer is a formula of the question, with a part that changes nothing, or another formula of its
    value that leaves as much work, and more than the gold."""
    if _is_whole(answer) or (_is_evaluated(answer) and not form_asked):
        return False
    value, wanted = quantity(answer), quantity(core(parse_answer(gold)))
    if form_of(answer) in formulas:
        return True
    if value is None:
        return False
    bare, least = _simple(value), _work(_simple(wanted)) if wanted else math.inf

    def resembles(formula: Expr) -> bool:
        if _contains(value, formula):
            return True
        if is_number(answer):  # a fraction, which may be the gold in lower terms
            return False
        other = _simple(formula)
        return form(bare) == form(other) or least < _work(bare) >= _work(other)

    return any(
        letters_of(formula) == letters_of(value) and resembles(formula) and equal(text, gold)
        for text, formula in formulas.items()
        if isinstance(formula, Call) and not _is_whole(Answer(formula))
    )


def _is_related(text: Tokens) -> bool:
    return any(token.text in RELATIONS for token in text)


@lru_cache(maxsize=256)
def _formulas(prompt: str) -> Formulas:
    """The formulas of a question, and the sides and items of each: as text with its tree, and in one spelling."""
    marked = [next(filter(None, match.groups())) for match in FORMULA.finditer(prompt)]
    formulas: Formulas = {}
    for text in (*marked, *_PROSE.split(FORMULA.sub(" . ", prompt))):
        whole = tokens(clean(text))
        pieces = (whole, *split(whole, ",", ";", "&", r"\\"), *split(whole, *RELATIONS, ",", ";", "&", r"\\"))
        for piece in {trimmed(piece) for piece in pieces}:
            if 0 < len(piece) < _LONGEST_FORMULA:
                with contextlib.suppress(Exception):  # a prompt may hold anything, such as the code of a figure
                    answer = core(answer_of(piece))
                    formulas |= {form_of(answer): None, untokenize(piece): quantity(answer)}
    return formulas


def _is_whole(answer: Answer) -> bool:
    """Whether this is a whole number, which nobody has to evaluate."""
    value = quantity(answer)
    size = value.args[0] if isinstance(value, Call) and value.name == "-" else value
    return isinstance(size, Number) and size.value.denominator == 1


def _is_evaluated(answer: Answer) -> bool:
    """Whether this is a decimal, or a fraction in lowest terms: it is copied only where its form was to change."""
    value = quantity(answer)
    size = value.args[0] if isinstance(value, Call) and value.name == "-" else value
    if isinstance(size, Call) and size.name == "/" and all(isinstance(arg, Number) for arg in size.args):
        above, below = (arg.value for arg in size.args if isinstance(arg, Number))
        return below != 0 and Fraction(above, below).denominator == below
    return isinstance(size, Number)


def _contains(whole: Expr, part: Expr) -> bool:
    """Whether an expression has another one as a part: `a+b` is one of `2(b+a)` and of `a+7+b`."""
    pieces = parts(whole)
    if isinstance(whole, Call) and whole.name in FLAT and isinstance(part, Call) and part.name == whole.name:
        if Counter(map(form, parts(part))) <= Counter(map(form, pieces)):
            return True
    return form(whole) == form(part) or any(_contains(piece, part) for piece in pieces)


def _work(expr: Expr) -> int:
    """How many operations an expression leaves to do; a sign and a fraction of two numbers leave none."""
    if not isinstance(expr, Call):
        return 0
    fraction = expr.name == "/" and all(isinstance(arg, Number) for arg in expr.args)
    own = 0 if expr.name == "-" or fraction else _FUNCTION if expr.name in FUNCTIONS else 1
    return own + sum(map(_work, expr.args))


def _simple(expr: Expr, inside: bool = False) -> Expr:
    """The expression with roots as powers, and with the numbers in it worked out; a number itself stays as it is."""
    if inside and not isinstance(expr, Number):
        with contextlib.suppress(NoFraction):
            return Number(exact(expr))
    if not isinstance(expr, Call):
        return expr
    args = [_simple(arg, True) for arg in expr.args]
    if expr.name == "root" and isinstance(args[0], Number) and args[0].value:
        return Call("^", (args[1], Number(1 / args[0].value)))
    return Call(expr.name, tuple(args))


def _is_plain(answer: Answer) -> bool:
    value = quantity(answer)
    return value is not None and is_number(answer) and not names_of(value, Call) & {"^", *_OPERATIONS}


def _is_operation(answer: Answer) -> bool:
    value = quantity(core(answer.value.sides[1]) if isinstance(answer.value, Relation) else answer)
    return value is not None and bool(names_of(value, Call) & _OPERATIONS or names_of(value, Symbol))
