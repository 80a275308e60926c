"""Values of expressions: exact fractions, residues modulo a prime for rational functions, many digits for the rest."""

import math
import random
from collections.abc import Callable
from fractions import Fraction

from real_openrlhf.verifier.reading.tree import Answer, Call, Expr, Number, Symbol, letters_of, quantity

MAX_BITS = 40_000  # 2^{1009} and 100! are answers; a tower of powers is not
# Significant digits that a decimal needs to be accepted for a value that has no finite decimal.
ROUNDED_DIGITS = 6
_PRIME = 2**127 - 1


class NoFraction(Exception):
    """The value is no fraction that can be worked out."""


class TooLarge(NoFraction):
    """The value is a number with more digits than any answer has."""


class NoValue(NoFraction):
    """The expression divides by zero, so only the same text is equal to it."""


class NotRational(NoFraction):
    """The expression has a root, a letter or a function, so its value is not a fraction."""


class NeedsDigits(Exception):
    """Exact arithmetic cannot compare the two: a worker has to compute many digits of both."""


def exact(expr: Expr) -> Fraction:
    """The value as a fraction; raises a NoFraction."""
    if isinstance(expr, Number):
        return expr.value
    if isinstance(expr, Symbol) or expr.name not in _EXACT:
        raise NotRational
    value = _EXACT[expr.name](*map(exact, expr.args))
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooLarge
    return value


def is_number(answer: Answer) -> bool:
    """Whether an answer is a fraction that can be worked out."""
    value = quantity(answer)
    try:
        return value is not None and exact(value) is not None
    except NoFraction:
        return False


def _divide(a: Fraction, b: Fraction) -> Fraction:
    if b == 0:
        raise NoValue
    return a / b


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _root(Fraction(exponent.denominator), _power(base, Fraction(exponent.numerator)))
    if base == 0 and exponent <= 0:
        raise NoValue
    bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if bits > 1 and bits * abs(exponent) > MAX_BITS:
        raise TooLarge
    return base ** (exponent.numerator if abs(base) != 1 else exponent.numerator % 2)


def _root(index: Fraction, value: Fraction) -> Fraction:
    """An exact root where there is one; an odd root of a negative number is real in school."""
    if index.denominator != 1 or not 2 <= index <= 64:
        raise NotRational
    if value < 0:
        if index % 2 == 0:
            raise NotRational
        return -_root(index, -value)
    found = Fraction(_whole_root(value.numerator, int(index)), _whole_root(value.denominator, int(index)))
    if found ** int(index) != value:
        raise NotRational
    return found


def _whole_root(value: int, index: int) -> int:
    low, high = 0, 1 << (value.bit_length() // index + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**index <= value else (low, middle - 1)
    return low


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise NotRational
    if value > 3_000:
        raise TooLarge
    return Fraction(math.factorial(int(value)))


def _binomial(top: Fraction, bottom: Fraction) -> Fraction:
    if top.denominator != 1 or bottom.denominator != 1 or top < 0 or bottom < 0:
        raise NotRational
    if min(bottom, top - bottom) > 5_000 or top.numerator.bit_length() > 64:
        raise TooLarge
    return Fraction(math.comb(int(top), int(bottom)))


def _common(of: Callable[..., int]) -> Callable[..., Fraction]:
    def common(*values: Fraction) -> Fraction:
        if any(value.denominator != 1 for value in values):
            raise NotRational
        return Fraction(of(*map(int, values)))

    return common


_EXACT: dict[str, Callable[..., Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a: -a,
    "*": lambda a, b: a * b,
    "/": _divide,
    "^": _power,
    "root": _root,
    "factorial": _factorial,
    "binomial": _binomial,
    "percent": lambda a: a / 100,
    "abs": abs,
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "mod": lambda a, b: a - b * math.floor(_divide(a, b)),
    "gcd": _common(math.gcd),
    "lcm": _common(math.lcm),
    "max": max,
    "min": min,
}


def modular(expr: Expr, point: dict[str, int]) -> int:
    """The value of a rational function modulo a large prime: two functions that agree at a random point are equal."""
    if isinstance(expr, Number):
        return expr.value.numerator * _inverse(expr.value.denominator) % _PRIME
    if isinstance(expr, Symbol):
        if expr.name not in point:
            raise NotRational
        return point[expr.name]
    if expr.name == "^":
        try:
            exponent = exact(expr.args[1])
        except (NoValue, TooLarge) as error:
            raise NotRational from error
        if exponent.denominator != 1 or abs(exponent) > 2**64:
            raise NotRational
        base = modular(expr.args[0], point)
        return pow(base if exponent >= 0 else _inverse(base), abs(int(exponent)), _PRIME)
    if expr.name not in ("+", "-", "*", "/"):
        raise NotRational
    values = [modular(arg, point) for arg in expr.args]
    if expr.name == "/":
        return values[0] * _inverse(values[1]) % _PRIME
    return {"+": sum(values), "-": -values[0], "*": values[0] * values[-1]}[expr.name] % _PRIME


def _inverse(value: int) -> int:
    if value % _PRIME == 0:
        raise NoValue
    return pow(value, -1, _PRIME)


def same_rational_function(one: Expr, other: Expr) -> bool | None:
    """Whether two expressions in letters are the same rational function; None if one is not rational."""
    generator = random.Random(2)
    try:
        for _ in range(2):
            point = {name: generator.randrange(2, _PRIME) for name in sorted(letters_of(one) | letters_of(other))}
            if modular(one, point) != modular(other, point):
                return False
    except NotRational:
        return None
    except NoValue:
        return False
    return True


def decimal_digits(expr: Expr) -> tuple[int, int] | None:
    """Significant digits and places of a decimal, also with a sign or a power of ten; None for other expressions."""
    if isinstance(expr, Call) and expr.name == "-":
        return decimal_digits(expr.args[0])
    shift = 0
    if isinstance(expr, Call) and expr.name == "*" and isinstance(expr.args[1], Call) and expr.args[1].name == "^":
        try:
            base, power = exact(expr.args[1].args[0]), exact(expr.args[1].args[1])
        except NoFraction:
            return None
        if base != 10 or power.denominator != 1 or abs(power) > 4_000:
            return None
        expr, shift = expr.args[0], int(power)
        if isinstance(expr, Number) and not expr.written:
            return len(str(abs(expr.value))), -shift
    if not isinstance(expr, Number) or not expr.written:
        return None
    return len(expr.written.replace(".", "").lstrip("0")), len(expr.written.partition(".")[2]) - shift


def rounds_to(decimal: Expr, value: Fraction, enough: int = ROUNDED_DIGITS) -> bool:
    """Whether `decimal` is written with enough digits and is `value` cut or rounded at its last digit."""
    written = decimal_digits(decimal)
    if written is None or written[0] < enough:
        return False
    approximation = exact(decimal)
    if (approximation < 0) != (value < 0):
        return False
    missing = (abs(value) - abs(approximation)) * Fraction(10) ** written[1]  # in units of the last digit
    return Fraction(-1, 2) <= missing < 1


def is_finite_decimal(value: Fraction) -> bool:
    return 10 ** value.denominator.bit_length() % value.denominator == 0
