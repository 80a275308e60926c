"""Equality of two leaves and of two regions by algebra: values at points decide. Runs in the worker only."""

from fractions import Fraction

import sympy
from math_verify import verify
from sympy.core.relational import Relational

from real_openrlhf.rewards.verifier import exact, labels, leaf, region_algebra
from real_openrlhf.rewards.verifier.comparison import Rules
from real_openrlhf.rewards.verifier.formulas import (
    POINT_DIGITS,
    TRIED_POINTS,
    UNFINISHED,
    close,
    divides_by_zero,
    finished,
    formula,
    not_finite,
    own_letters,
    points,
    value,
)
from real_openrlhf.rewards.verifier.relations import same_relation
from real_openrlhf.rewards.verifier.units import in_one_unit

_CONSTANT_DIGITS = 60  # e^{\pi\sqrt{163}} is an integer to 30
_POINTS = 4
# Functions whose graph has corners or steps: two that agree on positive numbers need not be equal.
_STEPS = (sympy.Abs, sympy.floor, sympy.ceiling, sympy.sign, sympy.Max, sympy.Min, sympy.Piecewise, sympy.Mod)


class GoldUnparsed(Exception):
    """The gold is no formula that math-verify can read, and the answer is not the same text."""


def same(gold: str, answer: str, digits: int = exact.ROUNDED_DIGITS) -> bool:
    """As leaf.same, but always decides."""
    try:
        return leaf.same(gold, answer, digits)
    except leaf.Undecided:
        return _same_formula(gold, answer, digits)


ALGEBRA = Rules(same, region_algebra.same)


def _same_formula(gold: str, answer: str, digits: int) -> bool:
    gold, answer = own_letters(*_compared_parts(gold, answer))
    gold_formula = formula(gold)
    if gold_formula is None:
        raise GoldUnparsed(gold)
    answer_formula = formula(answer)
    if divides_by_zero(gold) or divides_by_zero(answer):
        return False
    if answer_formula is None or not_finite(gold_formula) or not_finite(answer_formula):
        return False  # only numbers and sets of numbers are equal by their values; anything else by its text
    if gold_formula == answer_formula:
        return True
    verdict = None
    if isinstance(gold_formula, sympy.MatrixBase) or isinstance(answer_formula, sympy.MatrixBase):
        gold_formula, answer_formula = gold_formula.doit(), answer_formula.doit()
        if not isinstance(gold_formula, sympy.MatrixBase) or not isinstance(answer_formula, sympy.MatrixBase):
            return False
    elif isinstance(gold_formula, sympy.Expr) and isinstance(answer_formula, sympy.Expr):
        if not gold_formula.free_symbols and not answer_formula.free_symbols:
            verdict = _same_constant((gold_formula, answer_formula), (gold, answer), digits)
        else:
            verdict = _same_function(gold_formula, answer_formula)
    elif isinstance(gold_formula, Relational) and isinstance(answer_formula, Relational):
        verdict = same_relation(gold_formula, answer_formula)
    elif isinstance(gold_formula, sympy.Expr) != isinstance(answer_formula, sympy.Expr):
        return False
    if verdict is not None:
        return verdict
    return verify(gold_formula, answer_formula, timeout_seconds=None)


def _compared_parts(gold: str, answer: str) -> tuple[str, str]:
    """The values without names and units; two equations, or a name solved for in another way, as they are."""
    gold_name, gold_value = labels.named(gold)
    name, answer_value = labels.named(answer)
    if gold_name and name:
        equations = labels.is_equation(gold_name, gold_value) or labels.is_equation(name, answer_value)
        renamed = None if equations else labels.same_name(gold_name, name, answer_value)
        if renamed is None:
            return gold, answer
        answer_value = renamed
    return in_one_unit(gold_value, answer_value) or (gold_value, answer_value)


def _same_constant(formulas: tuple[sympy.Expr, sympy.Expr], texts: tuple[str, str], digits: int) -> bool:
    unfinished = any(expression.has(*UNFINISHED) for expression in formulas)
    precision = POINT_DIGITS // 2 if unfinished else _CONSTANT_DIGITS
    one, other = (value(finished(expression), {}, precision) for expression in formulas)
    if one is None or other is None:
        return False
    if close(one, other, digits=precision * 3 // 4):
        return True
    decimals = ((texts[1], formulas[0], one), (texts[0], formulas[1], other))
    return any(
        not expression.is_rational and number.is_real and exact.rounds_to(decimal, _as_fraction(number), digits)
        for decimal, expression, number in decimals
    )


def _as_fraction(number: sympy.Expr) -> Fraction:
    rational = sympy.Rational(number)
    return Fraction(int(rational.p), int(rational.q))


def _same_function(gold: sympy.Expr, answer: sympy.Expr) -> bool | None:
    """Equal values at random points; None where these are too few to tell, and for integrals and sums."""
    if gold.has(*UNFINISHED) or answer.has(*UNFINISHED):
        return None
    steps = gold.has(*_STEPS) or answer.has(*_STEPS)
    agreed = 0
    for point in points(gold, answer, signed=steps):
        one, other = value(gold, point), value(answer, point)
        if one is None or other is None:
            continue
        if not close(one, other):
            # Functions with steps may be meant for integers only, where floor((n+1)/2) is ceil(n/2).
            return None if steps and _agree_on_integers(gold, answer) else False
        agreed += 1
        if agreed == (TRIED_POINTS if steps else _POINTS):
            return True
    return None if agreed else False


def _agree_on_integers(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    for point in points(gold, answer, signed=False):
        point = {unknown: sympy.ceiling(number) for unknown, number in point.items()}
        one, other = value(gold, point), value(answer, point)
        if one is not None and other is not None and not close(one, other):
            return False
    return True
