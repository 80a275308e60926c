"""Equality of two leaves by algebra: math-verify parses, values at random points decide. Runs in the worker only."""

import random
import re
import string
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse, verify
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational

from real_openrlhf.rewards.verifier import exact, leaf

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
_LETTER = re.compile(r"\\(?:text|begin|end)\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z]")  # commands, to step over them
_DEGREES_OF = re.compile(r"(\d+(?:\.\d+)?)\^\{\\circ\}")
_GAMMA = re.compile(r"\\gamma(?![a-zA-Z])")  # read as the function, even in `\gamma - 1`
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
    gold, answer = _own_letters(gold, answer)
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
        verdict = _same_relation(gold_formula, answer_formula)
        if verdict is not None:
            return verdict
    elif isinstance(gold_formula, sympy.Expr) != isinstance(answer_formula, sympy.Expr):
        return False
    return verify(gold_formula, answer_formula, timeout_seconds=None)


@lru_cache(maxsize=256)
def formula(text: str) -> sympy.Basic | None:
    """What math-verify reads, with plain symbols for everything that only has a value at a point; None if nothing."""
    if _ANGLE_FUNCTION.search(text):
        text = _DEGREES_OF.sub(r"{(\\frac{\1\\pi}{180})}", text)
    text = _GAMMA.sub(r"\\upsilon ", text)
    found = parse(f"\\boxed{{{text}}}", _LATEX, parsing_timeout=None, fallback_mode="no_fallback")
    return _plain(found[0]) if found and isinstance(found[0], sympy.Basic | sympy.MatrixBase) else None


def _plain(read: sympy.Basic | sympy.MatrixBase) -> sympy.Basic | sympy.MatrixBase:
    """`f(t)` and `dx/dt` become symbols, `i` the imaginary unit, decimals exact, assumptions go."""
    whole = read.atoms(AppliedUndef, sympy.Derivative)
    outer = {item for item in whole if not any(item is not other and other.has(item) for other in whole)}
    read = read.subs({item: sympy.Symbol(str(item)) for item in outer})
    symbols = {item: sympy.I if item.name == "i" else sympy.Symbol(item.name) for item in read.atoms(sympy.Symbol)}
    return read.xreplace(symbols | {item: sympy.Rational(str(item)) for item in read.atoms(sympy.Float)})


def _own_letters(gold: str, answer: str) -> tuple[str, str]:
    """math-verify reads `M` as `m`, and `I_{0}` as the imaginary unit: such letters get one that nobody uses."""
    letters = {letter for letter in _LETTER.findall(gold + answer) if letter.isalpha()}
    taken = {letter.lower() for letter in letters} | set("eidf")
    unused = [letter for letter in string.ascii_lowercase if letter not in taken]
    renamed: dict[str, str] = {}

    def rename(match: re.Match) -> str:
        letter = match[0]
        has_index = match.string.startswith("_", match.end())
        if (letter in "eiEI" and has_index) or (letter.isupper() and letter.lower() in letters):
            key = letter + "_" * (letter in "eiEI")
            if key not in renamed and unused:
                renamed[key] = unused.pop()
            return renamed.get(key, letter)
        return letter

    return _LETTER.sub(rename, gold), _LETTER.sub(rename, answer)


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
    """Equal values at random points; None where the formulas have no values (integrals, sums)."""
    if gold.has(*_UNFINISHED) or answer.has(*_UNFINISHED):
        return None
    steps = gold.has(*_STEPS) or answer.has(*_STEPS)
    agreed = 0
    for point in _points(gold, answer, signed=steps):
        one, other = _value(gold, point), _value(answer, point)
        if one is None or other is None:
            continue
        if not _close(one, other):
            # Functions with steps may be meant for integers only, where floor((n+1)/2) is ceil(n/2).
            return None if steps and _agree_on_integers(gold, answer) else False
        agreed += 1
        if agreed == (_TRIED_POINTS if steps else _POINTS):
            return True
    return None


def _agree_on_integers(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    for point in _points(gold, answer, signed=False):
        point = {unknown: sympy.ceiling(value) for unknown, value in point.items()}
        one, other = _value(gold, point), _value(answer, point)
        if one is not None and other is not None and not _close(one, other):
            return False
    return True


def _same_relation(gold: Relational, answer: Relational) -> bool | None:
    """The same equation or inequality up to a factor, or equations with the same solutions; None: cannot tell."""
    gold, answer = _upward(gold), _upward(answer)
    if type(gold) is not type(answer) or _names(gold) != _names(answer):
        return False
    one, other = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    if one.has(*_UNFINISHED) or other.has(*_UNFINISHED):
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
    for point in _points(one, other, signed=False):
        above, below = _value(one, point), _value(other, point)
        if above is None or below is None or below == 0:
            continue
        ratios.append(above / below)
        if not _close(ratios[0], ratios[-1]):
            return None
        if len(ratios) == _POINTS:
            return ratios[0]
    return None


def _solves(equation: sympy.Expr, other: sympy.Expr) -> bool | None:
    """Whether random solutions of `equation = 0` solve `other = 0`; None where it is linear in no unknown."""
    for unknown in sorted(equation.free_symbols, key=str):
        slope = equation.diff(unknown)
        if slope.is_zero or slope.has(unknown):
            continue
        agreed = 0
        for point in _points(equation, other, signed=False):
            start, steepness = _value(equation, point | {unknown: 0}), _value(slope, point)
            if start is None or not steepness:
                continue
            solution = point | {unknown: -start / steepness}
            found, elsewhere = _value(other, solution), _value(other, point)
            if found is None or elsewhere is None:
                continue
            if abs(found) > abs(elsewhere) * sympy.Float(10) ** -(_POINT_DIGITS // 2):
                return False
            agreed += 1
            if agreed == _POINTS:
                return True
    return None


def _upward(relation: Relational) -> Relational:
    return relation.reversed if isinstance(relation, sympy.GreaterThan | sympy.StrictGreaterThan) else relation


def _names(relation: Relational) -> set[str]:
    return {symbol.name for symbol in relation.free_symbols}


def _points(one: sympy.Expr, other: sympy.Expr, signed: bool) -> Iterator[dict[sympy.Symbol, sympy.Rational]]:
    """Random rational values for every unknown, the same in every run."""
    unknowns = sorted(one.free_symbols | other.free_symbols, key=str)
    generator = random.Random(20260)
    for _ in range(_TRIED_POINTS):
        values = {}
        for unknown in unknowns:
            size = sympy.Rational(generator.randint(1, 9_999), 1_009) + sympy.Rational(1, 7)
            values[unknown] = -size if signed and generator.random() < 0.5 else size
        yield values


def _value(expression: sympy.Expr, point: dict, digits: int = _POINT_DIGITS) -> sympy.Expr | None:
    try:
        value = expression.evalf(digits, subs=point, maxn=4 * digits)
    except (ValueError, TypeError, ZeroDivisionError, NotImplementedError, OverflowError, AttributeError):
        return None
    return value if value.is_number and value.is_finite else None


def _close(one: sympy.Expr, other: sympy.Expr, digits: int = _POINT_DIGITS // 2) -> bool:
    size = max(abs(one), abs(other))
    return bool(size == 0 or abs(one - other) <= size * sympy.Float(10) ** -digits)
