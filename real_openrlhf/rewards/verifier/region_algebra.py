"""Two sets of real numbers compared at and between their boundary points. Runs in the worker only."""

from collections.abc import Callable
from itertools import product

import sympy

from real_openrlhf.rewards.verifier.formulas import POINT_DIGITS, formula, not_finite, value
from real_openrlhf.rewards.verifier.regions import Condition, Interval, Points, Region
from real_openrlhf.rewards.verifier.units import value_and_unit

_MAX_DEGREE = 12
_MAX_ABSOLUTE_VALUES = 4
_ZERO = sympy.Float(10) ** -(POINT_DIGITS // 2)
_INFINITIES = {r"\infty": sympy.oo, r"+\infty": sympy.oo, r"-\infty": -sympy.oo}

Contains = Callable[[sympy.Expr], bool]


class _NoRegion(Exception):
    """A bound without a value, several unknowns, or a condition whose boundary cannot be found."""


class _Line:
    """Regions of one unknown: their boundary points as they are met, and tests of membership."""

    def __init__(self) -> None:
        self.boundaries: list[sympy.Expr] = []
        self.unknowns: set[sympy.Symbol] = set()

    def test(self, region: Region) -> Contains:
        if isinstance(region, Interval):
            return self._interval(region)
        if isinstance(region, Points):
            numbers = [self._number(text) for text in region.values]
            return lambda x: any(abs(x - number) < _ZERO for number in numbers)
        if isinstance(region, Condition):
            return self._condition(region)
        tests = [self.test(part) for part in region.parts]
        if region.how == "minus":
            return lambda x: tests[0](x) and not any(test(x) for test in tests[1:])
        combine = all if region.how == "and" else any
        return lambda x: combine(test(x) for test in tests)

    def _interval(self, interval: Interval) -> Contains:
        low, high = self._number(interval.low), self._number(interval.high)

        def contains(x: sympy.Expr) -> bool:
            if abs(x - low) < _ZERO:
                return interval.closed[0]
            if abs(x - high) < _ZERO:
                return interval.closed[1]
            return bool(low < x < high)

        return contains

    def _number(self, text: str) -> sympy.Expr:
        if text in _INFINITIES:
            return _INFINITIES[text]
        read = formula(value_and_unit(text)[0])
        number = value(read, {}) if isinstance(read, sympy.Expr) and not read.free_symbols else None
        if number is None or not number.is_real:
            raise _NoRegion
        self.boundaries.append(number)
        return number

    def _condition(self, condition: Condition) -> Contains:
        if condition.left in _INFINITIES or condition.right in _INFINITIES:
            return lambda x: True  # -\infty < x
        left, right = formula(condition.left), formula(condition.right)
        if not isinstance(left, sympy.Expr) or not isinstance(right, sympy.Expr):
            raise _NoRegion
        difference = left - right
        if not_finite(difference):
            raise _NoRegion
        self.unknowns |= difference.free_symbols
        if len(self.unknowns) != 1:
            raise _NoRegion
        (unknown,) = self.unknowns
        self.boundaries += _boundaries(difference, unknown)

        def contains(x: sympy.Expr) -> bool:
            number = value(difference, {unknown: x})
            if number is None or not number.is_real:
                return False
            is_zero = abs(number) < _ZERO
            return {"<": number < 0 and not is_zero, r"\le": number < 0 or is_zero, r"\ne": not is_zero}[
                condition.sign
            ]

        return contains


def same(gold: Region, answer: Region) -> bool:
    """Whether both contain the same of all points that can tell them apart: boundaries, and one between any two."""
    line, other_line = _Line(), _Line()
    try:
        in_gold, in_answer = line.test(gold), other_line.test(answer)
    except _NoRegion:
        return False
    if line.unknowns and other_line.unknowns and line.unknowns != other_line.unknowns:
        return False
    return all(in_gold(x) == in_answer(x) for x in _telling_points(line.boundaries + other_line.boundaries))


def _telling_points(boundaries: list[sympy.Expr]) -> list[sympy.Expr]:
    found = sorted(set(boundaries)) or [sympy.Integer(0)]
    distinct = found[:1] + [x for before, x in zip(found, found[1:], strict=False) if x - before > _ZERO]
    between = [(one + other) / 2 for one, other in zip(distinct, distinct[1:], strict=False)]
    return [distinct[0] - 1, *distinct, *between, distinct[-1] + 1]


def _boundaries(difference: sympy.Expr, unknown: sympy.Symbol) -> list[sympy.Expr]:
    """Where a rational function, perhaps of absolute values, is zero or not defined."""
    absolute = sorted(difference.atoms(sympy.Abs), key=str)
    if len(absolute) > _MAX_ABSOLUTE_VALUES:
        raise _NoRegion
    found = []
    for signs in product((1, -1), repeat=len(absolute)):
        plain = difference.xreplace({item: sign * item.args[0] for item, sign in zip(absolute, signs, strict=True)})
        for part in sympy.fraction(sympy.together(plain)):
            found += _real_roots(part, unknown)
    return found


def _real_roots(expression: sympy.Expr, unknown: sympy.Symbol) -> list[sympy.Expr]:
    if not expression.has(unknown):
        return []
    if not expression.is_polynomial(unknown) or sympy.degree(expression, unknown) > _MAX_DEGREE:
        raise _NoRegion
    try:
        roots = sympy.Poly(expression, unknown).nroots(n=POINT_DIGITS, maxsteps=200)
    except (sympy.polys.polyerrors.BasePolynomialError, ValueError, TypeError, ArithmeticError):
        raise _NoRegion from None
    return [sympy.re(root) for root in roots if abs(sympy.im(root)) < _ZERO]
