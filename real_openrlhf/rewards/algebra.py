"""Equality of two leaves by algebra: math-verify parses, values at random points decide. Runs in the worker only."""

import random
import re
import string
from fractions import Fraction
from functools import lru_cache

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from real_openrlhf.rewards import exact, leaf

# Units are off: math-verify would drop the `t` of `3t` as a unit. leaf.value_and_unit has done that job.
_LATEX = [
    LatexExtractionConfig(
        boxed_match_priority=0,
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
        ),
    )
]
_CONSTANT_DIGITS = 60  # e^{\pi\sqrt{163}} is an integer to 30
_POINT_DIGITS = 30
_POINTS = 4
_TRIED_POINTS = 12
# Functions whose graph has corners or steps: two that agree on positive numbers need not be equal.
_STEPS = (sympy.Abs, sympy.floor, sympy.ceiling, sympy.sign, sympy.Max, sympy.Min, sympy.Piecewise, sympy.Mod)
_UNFINISHED = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
_CAPITAL = re.compile(r"\\[a-zA-Z]+|[A-Z]")
_DEGREES_OF = re.compile(r"(\d+(?:\.\d+)?)\^\{\\circ\}")
_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")


class GoldUnparsed(Exception):
    """The gold is no formula that math-verify can read, and the answer is not the same text."""


def same(gold: str, answer: str) -> bool:
    """As leaf.same, but always decides."""
    try:
        return leaf.same(gold, answer)
    except leaf.Undecided:
        return _same_formula(gold, answer)


def _same_formula(gold: str, answer: str) -> bool:
    gold_name, gold_value = leaf.named(gold)
    name, value = leaf.named(answer)
    both_equations = bool(gold_name and name) and (leaf.is_equation(gold_name) or leaf.is_equation(name))
    if not both_equations:
        gold, answer = leaf.value_and_unit(gold_value)[0], leaf.value_and_unit(value)[0]
    gold, answer = _distinct_capitals(gold, answer)
    gold_formula = formula(gold)
    if gold_formula is None:
        raise GoldUnparsed(gold)
    answer_formula = formula(answer)
    if answer_formula is None:
        return False
    if gold_formula == answer_formula:
        return True
    if isinstance(gold_formula, sympy.Expr) and isinstance(answer_formula, sympy.Expr):
        if not gold_formula.free_symbols and not answer_formula.free_symbols:
            verdict = _same_constant(gold_formula, answer_formula, gold, answer)
        else:
            verdict = _same_function(gold_formula, answer_formula)
        if verdict is not None:
            return verdict
    elif isinstance(gold_formula, Relational) and isinstance(answer_formula, Relational):
        if _names(gold_formula) != _names(answer_formula):
            return False
        if _proportional(gold_formula, answer_formula):
            return True
    elif isinstance(gold_formula, sympy.Expr) != isinstance(answer_formula, sympy.Expr):
        return False
    return verify(gold_formula, answer_formula, timeout_seconds=None)


@lru_cache(maxsize=256)
def formula(text: str) -> sympy.Basic | None:
    if _ANGLE_FUNCTION.search(text):
        text = _DEGREES_OF.sub(r"{(\\frac{\1\\pi}{180})}", text)
    found = parse(f"\\boxed{{{text}}}", _LATEX, parsing_timeout=None, fallback_mode="no_fallback")
    return found[0] if found and isinstance(found[0], sympy.Basic | sympy.MatrixBase) else None


def _distinct_capitals(gold: str, answer: str) -> tuple[str, str]:
    """math-verify reads `M` as `m`: where both occur, the capital gets a letter that nobody uses."""
    letters = set(re.sub(r"\\[a-zA-Z]+", " ", gold + answer))
    unused = [
        letter for letter in string.ascii_lowercase if not {letter, letter.upper()} & letters and letter not in "eidf"
    ]
    renamed = {}
    for capital in sorted(letters & set(string.ascii_uppercase)):
        if capital.lower() in letters and unused:
            renamed[capital] = unused.pop()

    def rename(match: re.Match) -> str:
        return renamed.get(match[0], match[0])

    return _CAPITAL.sub(rename, gold), _CAPITAL.sub(rename, answer)


def _same_constant(gold: sympy.Expr, answer: sympy.Expr, gold_text: str, answer_text: str) -> bool | None:
    values = [_value(expression, {}, _CONSTANT_DIGITS) for expression in (gold, answer)]
    if None in values:
        return None
    if _close(*values, digits=_CONSTANT_DIGITS - 15):
        return True
    decimals = ((answer_text, gold, values[0]), (gold_text, answer, values[1]))
    return any(
        not expression.is_rational and value.is_real and exact.rounds_to(decimal, _as_fraction(value))
        for decimal, expression, value in decimals
    )


def _as_fraction(value: sympy.Expr) -> Fraction:
    number = sympy.Rational(value)
    return Fraction(int(number.p), int(number.q))


def _same_function(gold: sympy.Expr, answer: sympy.Expr) -> bool | None:
    """Equal values at random points; None where the formulas have no values (integrals, derivatives of nothing)."""
    if gold.has(*_UNFINISHED) or answer.has(*_UNFINISHED):
        return None
    steps = gold.has(*_STEPS) or answer.has(*_STEPS)
    agreed = 0
    for point in _points(gold, answer, signed=steps):
        one, other = _value(gold, point), _value(answer, point)
        if one is None or other is None:
            continue
        if not _close(one, other):
            return None if steps else False
        agreed += 1
        if agreed == (_TRIED_POINTS if steps else _POINTS):
            return True
    return None


def _proportional(gold: Relational, answer: Relational) -> bool:
    """The same equation or inequality up to a factor, which must be positive for an inequality."""
    gold, answer = _upward(gold), _upward(answer)
    if type(gold) is not type(answer):
        return False
    gold_side, answer_side = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    ratios = []
    for point in _points(gold_side, answer_side, signed=False):
        one, other = _value(gold_side, point), _value(answer_side, point)
        if one is None or other is None or other == 0:
            continue
        ratios.append(one / other)
        if not _close(ratios[0], ratios[-1]):
            return False
        if len(ratios) == _POINTS:
            return isinstance(gold, sympy.Eq | sympy.Ne) or bool(sympy.re(ratios[0]) > 0)
    return False


def _upward(relation: Relational) -> Relational:
    return relation.reversed if isinstance(relation, sympy.GreaterThan | sympy.StrictGreaterThan) else relation


def _points(one: sympy.Expr, other: sympy.Expr, signed: bool):
    """Assignments of rational numbers to everything that stands for a value, by name, the same in every run."""
    unknowns = sorted(_names(one) | _names(other))
    generator = random.Random(20260)
    for _ in range(_TRIED_POINTS):
        values = {}
        for name in unknowns:
            size = sympy.Rational(generator.randint(1, 9_999), 1_009) + sympy.Rational(1, 7)
            values[name] = -size if signed and generator.random() < 0.5 else size
        yield values


def _unknowns(expression: sympy.Basic) -> set[sympy.Basic]:
    """Symbols, and unknown functions and derivatives taken whole."""
    whole = {item for item in expression.atoms(AppliedUndef, sympy.Derivative)}
    outer = {item for item in whole if not any(item is not other and other.has(item) for other in whole)}
    masked = expression.subs({item: sympy.Integer(1) for item in outer}) if outer else expression
    return outer | {symbol for symbol in masked.free_symbols if symbol.name != "i"}


def _names(expression: sympy.Basic) -> set[str]:
    return {_name(item) for item in _unknowns(expression)}


def _name(item: sympy.Basic) -> str:
    return item.name if isinstance(item, sympy.Symbol) else str(item)


def _value(expression: sympy.Expr, point: dict[str, sympy.Rational], digits: int = _POINT_DIGITS) -> sympy.Expr | None:
    replaced = {item: point[_name(item)] for item in _unknowns(expression)} if point else {}
    replaced |= {symbol: sympy.I for symbol in expression.free_symbols if symbol.name == "i"}
    replaced |= {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    try:
        value = expression.subs(replaced, simultaneous=True).evalf(digits, maxn=4 * digits)
    except (ValueError, TypeError, ZeroDivisionError, NotImplementedError, OverflowError, AttributeError):
        return None
    return value if value.is_number and value.is_finite and not value.free_symbols else None


def _close(one: sympy.Expr, other: sympy.Expr, digits: int = _POINT_DIGITS // 2) -> bool:
    size = max(abs(one), abs(other))
    return bool(size == 0 or abs(one - other) <= size * sympy.Float(10) ** -digits)
