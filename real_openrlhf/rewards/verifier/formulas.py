"""LaTeX to formulas with values: math-verify reads the text, what follows makes its reading the usual one."""

import random
import re
import string
from collections.abc import Iterator
from functools import lru_cache

import sympy
from latex2sympy2_extended import NormalizationConfig
from math_verify import LatexExtractionConfig, parse
from sympy.core.function import AppliedUndef

from real_openrlhf.rewards.verifier.normalise import denominators

# Units are off: math-verify would drop the `t` of `3t` as a unit. units.value_and_unit has done that job.
_LATEX = [
    LatexExtractionConfig(
        boxed_match_priority=0,
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
        ),
    )
]
POINT_DIGITS = 30
TRIED_POINTS = 12
_TINY = sympy.Float(10) ** -(POINT_DIGITS // 2)
UNFINISHED = (sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit)
_NOT_FINITE = (sympy.oo, -sympy.oo, sympy.zoo, sympy.nan, sympy.AccumBounds)
_LETTER = re.compile(r"\\(?:text|begin|end)\{[^{}]*\}|\\[a-zA-Z]+|[a-zA-Z]")  # commands, to step over them
_DEGREES_OF = re.compile(r"(\d+(?:\.\d+)?|\\frac\{\d+\}\{\d+\})\^\{\\circ\}")
_GAMMA = re.compile(r"\\gamma(?![a-zA-Z])")  # read as the function, even in `\gamma - 1`
_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])|\\text\{cis\}")
_CIS = re.compile(r"\\text\{cis\} ?(?:\(([^()]*)\)|((?:[^+\-(){}]|\{(?:[^{}]|\{[^{}]*\})*\})+))")


@lru_cache(maxsize=256)
def formula(text: str) -> sympy.Basic | None:
    """What math-verify reads, with plain symbols for everything that only has a value at a point; None if nothing."""
    if ":" in text:
        return None  # math-verify would divide
    if _ANGLE_FUNCTION.search(text):
        text = _DEGREES_OF.sub(r"{(\\frac{\1\\pi}{180})}", text)
        text = _CIS.sub(lambda cis: f"e^{{i({cis[1] or cis[2]})}}", text)
    text = _GAMMA.sub(r"\\upsilon ", text)
    found = parse(f"\\boxed{{{text}}}", _LATEX, parsing_timeout=None, fallback_mode="no_fallback")
    return _plain(found[0]) if found and isinstance(found[0], sympy.Basic | sympy.MatrixBase) else None


def own_letters(gold: str, answer: str) -> tuple[str, str]:
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


def not_finite(read: sympy.Basic | sympy.MatrixBase) -> bool:
    """Whether a formula holds infinity or a division by zero outside the limits of a sum or an integral."""
    return read.has(*_NOT_FINITE) and not read.has(*UNFINISHED)


def divides_by_zero(text: str) -> bool:
    """Whether a fraction below another has no value: sympy makes 0 of 1/(1/0)."""
    for below in denominators(text):
        if "frac" in below or "/" in below:
            read = formula(below)
            if isinstance(read, sympy.Expr) and (not_finite(read) or read.is_zero):
                return True
    return False


def value(expression: sympy.Expr, point: dict, digits: int = POINT_DIGITS) -> sympy.Expr | None:
    """The finite value at a point; None where there is none."""
    try:
        number = expression.evalf(digits, subs=point, maxn=4 * digits)
    except (ValueError, TypeError, ZeroDivisionError, NotImplementedError, OverflowError, AttributeError):
        return None
    if not number.is_number or not number.is_finite:
        return None
    # `0.e+129` is how sympy says that an integral diverges.
    vague = any(part._prec == 1 and abs(part) >= _TINY for part in number.atoms(sympy.Float))
    return None if vague else number


def finished(expression: sympy.Expr) -> sympy.Expr:
    """With its limits worked out."""
    limits = expression.atoms(sympy.Limit)
    return expression.xreplace({limit: limit.doit() for limit in limits}) if limits else expression


def close(one: sympy.Expr, other: sympy.Expr, digits: int = POINT_DIGITS // 2) -> bool:
    size = max(abs(one), abs(other))
    return bool(size == 0 or abs(one - other) <= size * sympy.Float(10) ** -digits)


def points(one: sympy.Expr, other: sympy.Expr, signed: bool) -> Iterator[dict[sympy.Symbol, sympy.Rational]]:
    """Random rational values for every unknown, the same in every run."""
    unknowns = sorted(one.free_symbols | other.free_symbols, key=str)
    generator = random.Random(20260)
    for _ in range(TRIED_POINTS):
        values = {}
        for unknown in unknowns:
            size = sympy.Rational(generator.randint(1, 9_999), 1_009) + sympy.Rational(1, 7)
            values[unknown] = -size if signed and generator.random() < 0.5 else size
        yield values


def _plain(read: sympy.Basic | sympy.MatrixBase) -> sympy.Basic | sympy.MatrixBase:
    """`f(t)` and `dx/dt` become symbols, `i` the imaginary unit, decimals exact, assumptions go."""
    whole = read.atoms(AppliedUndef, sympy.Derivative)
    outer = {item for item in whole if not any(item is not other and other.has(item) for other in whole)}
    read = read.subs({item: sympy.Symbol(str(item)) for item in outer})
    symbols = {item: sympy.I if item.name == "i" else sympy.Symbol(item.name) for item in read.atoms(sympy.Symbol)}
    read = read.xreplace(symbols | {item: sympy.Rational(str(item)) for item in read.atoms(sympy.Float)})
    return read.xreplace({power: _real_root(power) for power in read.atoms(sympy.Pow)})


def _real_root(power: sympy.Pow) -> sympy.Expr:
    r"""`\sqrt[3]{-8}` is -2: an odd root of a negative number is real in school."""
    base, exponent = power.args
    if exponent.is_Rational and exponent.q % 2 and exponent.q > 1 and base.is_number and base.is_negative:
        return (-1) ** exponent.p * (-base) ** exponent
    return power
