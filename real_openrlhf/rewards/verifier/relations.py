"""Equations and inequalities: the same up to a factor, or with the same solutions. Runs in the worker only."""

import sympy
from sympy.core.relational import Relational

from real_openrlhf.rewards.verifier.formulas import POINT_DIGITS, UNFINISHED, close, points, value

_POINTS = 4
_MAX_DEGREE = 8


def same_relation(gold: Relational, answer: Relational) -> bool | None:
    """None where it cannot be told."""
    gold, answer = _upward(gold), _upward(answer)
    if type(gold) is not type(answer) or _names(gold) != _names(answer):
        return False
    one, other = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    if one.has(*UNFINISHED) or other.has(*UNFINISHED):
        return None
    ratio = _constant_ratio(one, other)
    if ratio is not None:
        return isinstance(gold, sympy.Eq | sympy.Ne) or bool(ratio.is_real and ratio > 0)
    if isinstance(gold, sympy.Eq):
        there, back = _solves(one, other), _solves(other, one)
        if False in (there, back):
            return False
        return True if there and back else None
    return None


def _constant_ratio(one: sympy.Expr, other: sympy.Expr) -> sympy.Expr | None:
    ratios = []
    for point in points(one, other, signed=False):
        above, below = value(one, point), value(other, point)
        if above is None or below is None or below == 0:
            continue
        ratios.append(above / below)
        if not close(ratios[0], ratios[-1]):
            return None
        if len(ratios) == _POINTS:
            return ratios[0]
    return None


def _solves(equation: sympy.Expr, other: sympy.Expr) -> bool | None:
    """Whether all solutions for one unknown, at random values of the others, solve `other = 0`.

    None where the equation is a polynomial in no unknown.
    """
    numerator, denominator = sympy.fraction(sympy.together(equation))
    for unknown in sorted(equation.free_symbols, key=str):
        if not numerator.is_polynomial(unknown) or not 1 <= sympy.degree(numerator, unknown) <= _MAX_DEGREE:
            continue
        agreed = 0
        for point in points(equation, other, signed=True):
            rest = {symbol: number for symbol, number in point.items() if symbol != unknown}
            elsewhere = value(other, point)
            solved = _solutions(numerator, denominator, unknown, rest)
            if elsewhere is None or solved is None:
                continue
            for solution in solved:
                found = value(other, rest | {unknown: solution})
                if found is None or abs(found) > abs(elsewhere) * sympy.Float(10) ** -(POINT_DIGITS // 3):
                    return False
            agreed += 1
            if agreed == _POINTS:
                return True
    return None


def _solutions(numerator: sympy.Expr, denominator: sympy.Expr, unknown: sympy.Symbol, rest: dict) -> list | None:
    """The roots of the numerator where the denominator has none."""
    try:
        roots = sympy.Poly(numerator.subs(rest), unknown).nroots(n=POINT_DIGITS, maxsteps=200)
    except (sympy.PolynomialError, sympy.polys.polyerrors.DomainError, ValueError, TypeError, ArithmeticError):
        return None
    except sympy.polys.polyerrors.BasePolynomialError:
        return None
    tiny = sympy.Float(10) ** -(POINT_DIGITS // 2)
    return [root for root in roots if abs(value(denominator, rest | {unknown: root}) or 0) > tiny]


def _upward(relation: Relational) -> Relational:
    return relation.reversed if isinstance(relation, sympy.GreaterThan | sympy.StrictGreaterThan) else relation


def _names(relation: Relational) -> set[str]:
    return {symbol.name for symbol in relation.free_symbols}
