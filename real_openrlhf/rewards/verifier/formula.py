"""Equality by algebra: math-verify reads the LaTeX, values at points decide. Runs in the worker only."""

import random
import re
import string
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import islice

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanAtom

from real_openrlhf.rewards.verifier import number, value
from real_openrlhf.rewards.verifier.process import Undecided
from real_openrlhf.rewards.verifier.text import denominators

# Units are off: math-verify would drop the `t` of `3t` as a unit. value.value_and_unit has done that job.
_LATEX = [
    LatexExtractionConfig(
        boxed_match_priority=0,
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
        ),
    )
]
_DIGITS = 60  # 2^{70} n and 2^{70} n + n^3 differ in the 21st
_CONSTANT_DIGITS = 60  # e^{\pi\sqrt{163}} is an integer to 30
_POINTS, _TRIED_POINTS = 4, 12
# Their values are limits, which sympy finds by guessing or not at all: no value.
_UNFINISHED = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
_NOT_FINITE = (sympy.oo, -sympy.oo, sympy.zoo, sympy.nan, sympy.AccumBounds)
# Functions whose graph has corners or steps: two that agree on positive numbers need not be equal.
_STEPS = (sympy.Abs, sympy.floor, sympy.ceiling, sympy.sign, sympy.Max, sympy.Min, sympy.Piecewise, sympy.Mod)
_LETTER = re.compile(r"\\(?:text|begin|end)\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z]")  # commands, to step over them
_DEGREES_OF = re.compile(r"(\d+(?:\.\d+)?|\\frac\{\d+\}\{\d+\})\^\{\\circ\}")
_MISREAD = re.compile(r"\\(?:gcd|lcm)(?![a-zA-Z])|[fgh]\^\{-1\}\(")
_FUNCTION_TIMES = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc|ln|log)(?:\^\{\d+\})?) ?((?:[\da-zA-Z]|\\(?!cdot)[a-z]+(?![a-z]) ?)+)\\cdot ?"
)
_DECIMAL_EXPONENT = re.compile(r"\^\{(-?\d*)\.(\d+)\}")  # sympy makes a float of e^{-2.5}
_GAMMA = re.compile(r"\\gamma(?![a-zA-Z])")  # read as the function, even in `\gamma - 1`


class GoldUnparsed(Undecided):
    """The gold is no formula that math-verify can read, and the answer is not the same text."""

    reason = "gold_unparsed"


def same(gold: str, answer: str, digits: int = number.ROUNDED_DIGITS) -> bool:
    """As value.same, but always decides."""
    try:
        return value.same(gold, answer, digits)
    except value.Undecided as pair:
        return _same_formula(*_own_letters(*pair.args), digits)


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


def _same_formula(gold: str, answer: str, digits: int) -> bool:
    gold_formula, answer_formula = formula(gold), formula(answer)
    if gold_formula is None or gold_formula.has(*_UNFINISHED) or isinstance(gold_formula, BooleanAtom):
        raise GoldUnparsed(gold)  # a membership that sympy turned into false is equal to any other
    if answer_formula is None or answer_formula.has(*_UNFINISHED):
        return False
    if _has_no_value(gold, gold_formula) or _has_no_value(answer, answer_formula):
        return False  # only finite numbers are equal by their values; anything else by its text
    if gold_formula == answer_formula:
        return True
    if isinstance(gold_formula, sympy.MatrixBase):
        product = answer_formula.doit()
        return (
            isinstance(product, sympy.MatrixBase)
            and gold_formula.shape == product.shape
            and all(
                _same_expression(one, other, (gold, answer), digits)
                for one, other in zip(gold_formula, product, strict=True)
            )
        )
    if isinstance(gold_formula, Relational) and isinstance(answer_formula, Relational):
        return _same_relation(gold_formula, answer_formula)
    if not isinstance(gold_formula, sympy.Expr) or not isinstance(answer_formula, sympy.Expr):
        return False
    return _same_expression(gold_formula, answer_formula, (gold, answer), digits)


def _same_expression(
    gold_formula: sympy.Expr, answer_formula: sympy.Expr, texts: tuple[str, str], digits: int
) -> bool:
    if not gold_formula.free_symbols and not answer_formula.free_symbols:
        return _same_constant((gold_formula, answer_formula), texts, digits)
    return _same_function(gold_formula, answer_formula)


@lru_cache(maxsize=256)
def formula(text: str) -> sympy.Basic | sympy.MatrixBase | None:
    """What math-verify reads, with plain symbols for everything that only has a value at a point; None if nothing."""
    if ":" in text or _MISREAD.search(text):
        return None  # math-verify would divide, take gcd(n,k) for 1, an inverse function for a quotient
    text = _FUNCTION_TIMES.sub(r"\1(\2)\\cdot ", _DECIMAL_EXPONENT.sub(_as_fraction, text))
    if value.ANGLE_FUNCTION.search(text):
        text = _DEGREES_OF.sub(r"{(\\frac{\1\\pi}{180})}", text)
    text = _GAMMA.sub(r"\\upsilon ", text)
    found = parse(f"\\boxed{{{text}}}", _LATEX, parsing_timeout=None, fallback_mode="no_fallback")
    return _plain(found[0]) if found and isinstance(found[0], sympy.Basic | sympy.MatrixBase) else None


def _as_fraction(exponent: re.Match) -> str:
    digits = f"{exponent[1]}{exponent[2]}"
    sign = "-" if digits.startswith("-") else ""
    return f"^{{{sign}\\frac{{{digits.removeprefix('-')}}}{{{10 ** len(exponent[2])}}}}}"


def _plain(read: sympy.Basic | sympy.MatrixBase) -> sympy.Basic | sympy.MatrixBase:
    """`f(t)` and `dx/dt` become symbols, `i` the imaginary unit, decimals exact, assumptions go."""
    whole = read.atoms(AppliedUndef, sympy.Derivative)
    outer = {item for item in whole if not any(item is not other and other.has(item) for other in whole)}
    read = read.subs({item: sympy.Symbol(str(item)) for item in outer})
    symbols = {
        item: sympy.I if item.name == "i" and not read.has(*_UNFINISHED) else sympy.Symbol(item.name)
        for item in read.atoms(sympy.Symbol)
    }
    read = read.xreplace(symbols | {item: sympy.Rational(str(item)) for item in read.atoms(sympy.Float)})
    return read.xreplace({power: _real_root(power) for power in read.atoms(sympy.Pow)})


def _real_root(power: sympy.Pow) -> sympy.Expr:
    r"""`\sqrt[3]{-8}` is -2: an odd root of a negative number is real in school."""
    base, exponent = power.args
    odd = exponent.is_Rational and exponent.q % 2 and exponent.q > 1
    return (-1) ** exponent.p * (-base) ** exponent if odd and base.is_number and base.is_negative else power


def _has_no_value(text: str, read: sympy.Basic | sympy.MatrixBase) -> bool:
    """Whether it holds infinity or a division by zero, also below a fraction: sympy makes 0 of 1/(1/0)."""
    if read.has(*_NOT_FINITE):
        return True
    for below in denominators(text):
        if "frac" in below or "/" in below:
            part = formula(below)
            if isinstance(part, sympy.Expr) and (part.has(*_NOT_FINITE) or part.is_zero):
                return True
    return False


def _value(expression: sympy.Expr, point: dict, digits: int = _DIGITS) -> sympy.Expr | None:
    """The finite value at a point; None where there is none."""
    try:
        found = expression.evalf(digits, subs=point, maxn=4 * digits)
    except (ValueError, TypeError, ZeroDivisionError, NotImplementedError, OverflowError, AttributeError):
        return None
    if not found.is_number or not found.is_finite:
        return None
    return found


def _close(one: sympy.Expr, other: sympy.Expr, digits: int = _DIGITS * 3 // 4) -> bool:
    size = max(abs(one), abs(other))
    return bool(size == 0 or abs(one - other) <= size * sympy.Float(10) ** -digits)


def _values(one: sympy.Expr, other: sympy.Expr, signed: bool = False) -> Iterator[tuple[sympy.Expr, sympy.Expr]]:
    """Both values at random rational points, the same in every run, where both have one; every second one is near 1,
    where a high power does not hide a constant."""
    unknowns = sorted(one.free_symbols | other.free_symbols, key=str)
    generator = random.Random(20260)
    for trial in range(_TRIED_POINTS):
        point = {}
        for unknown in unknowns:
            drawn = generator.randint(1, 9_999)
            near = sympy.Rational(drawn, 100_003) + sympy.Rational(20, 21)
            size = near if trial % 2 else sympy.Rational(drawn, 1_009) + sympy.Rational(1, 7)
            point[unknown] = -size if signed and generator.random() < 0.5 else size
        values = _value(one, point), _value(other, point)
        if values[0] is not None and values[1] is not None:
            yield values


def _same_constant(formulas: tuple[sympy.Expr, sympy.Expr], texts: tuple[str, str], digits: int) -> bool:
    one, other = (_value(expression, {}, _CONSTANT_DIGITS) for expression in formulas)
    if one is None or other is None:
        return False
    if _close(one, other, digits=_CONSTANT_DIGITS * 3 // 4):
        return True
    decimals = ((texts[1], formulas[0], one), (texts[0], formulas[1], other))
    return any(
        not expression.is_rational
        and exact.is_real
        and number.rounds_to(decimal, Fraction(*map(int, sympy.Rational(exact).as_numer_denom())), digits)
        for decimal, expression, exact in decimals
    )


def _same_function(gold: sympy.Expr, answer: sympy.Expr) -> bool:
    """Equal values at random points; a function with steps needs all of them."""
    steps = gold.has(*_STEPS) or answer.has(*_STEPS)
    agreed = 0
    for one, other in _values(gold, answer, signed=steps):
        if not _close(one, other):
            return False
        agreed += 1
        if agreed == (_TRIED_POINTS if steps else _POINTS):
            return True
    if agreed:
        raise GoldUnparsed("too few points have a value")
    return False


def _same_relation(gold: Relational, answer: Relational) -> bool:
    """Equations are the same up to a factor, inequalities up to a positive one."""
    gold, answer = (
        relation.reversed if isinstance(relation, sympy.GreaterThan | sympy.StrictGreaterThan) else relation
        for relation in (gold, answer)
    )
    if type(gold) is not type(answer) or gold.free_symbols != answer.free_symbols:
        return False
    if not all(isinstance(side, sympy.Expr) for side in gold.args):
        raise GoldUnparsed("an equation of what cannot be subtracted")
    if not all(isinstance(side, sympy.Expr) for side in answer.args):
        return False
    one, other = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    ratios = [above / below for above, below in islice(_values(one, other), _POINTS) if below != 0]
    if len(ratios) < _POINTS or not all(_close(ratios[0], ratio) for ratio in ratios):
        return False
    return isinstance(gold, sympy.Eq | sympy.Ne) or bool(ratios[0].is_real and ratios[0] > 0)
