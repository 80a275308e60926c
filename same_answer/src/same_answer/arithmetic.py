"""Values of expressions: exact fractions, residues modulo a prime for rational functions, many digits for the rest."""

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from same_answer.reading.tree import Answer, Call, Expr, Number, Symbol, letters_of, names_of, quantity

MAX_BITS = 40_000  # 2^{1009} and 100! are answers; a tower of powers is not
# Significant digits that a decimal needs to be accepted for a value that has no finite decimal.
ROUNDED_DIGITS = 6
# p and (p-1)/2 are primes: a power is 1 modulo p for no small exponent, as 2^127 is modulo 2^127 - 1.
_PRIMES = (134885792497856471641883841714805067819, 121458035329048733225552693220129189683)
_REAL_ONLY = frozenset("^ root ln log lg arcsin arccos arcsec arccsc arccosh arctanh arccoth arcsech".split())
_LARGEST = 10**6  # exponents and arguments beyond this have no digits to compare: a tower of powers, a sine of it
_MOST_DIGITS = 20_000  # before or behind the point; all are computed, so that a difference of one unit shows
_ORDINARY_DIGITS = 1_000  # of values at random points: more are computed only where no point has fewer
_LONGEST_PRODUCT = 20_000  # factors of a factorial or a binomial modulo a prime
_SIZE_OF_A_COMPLEX_NUMBER = Call("abs", (Symbol("z"),))  # treated as unknown, because z may be complex
_GROWING = frozenset("exp sinh cosh coth sech csch sin cos tan cot sec csc sinc factorial binomial".split())
_SATURATED = frozenset("tanh coth".split())
_WITH_CORNERS = frozenset("abs floor ceil mod max min".split())


class NoFraction(Exception):
    """The value is no fraction that can be worked out."""


class TooLarge(NoFraction):
    """The value is a number with more digits than any answer has."""


class GoldTooLarge(TooLarge):
    """The value of the gold is such a number, so no answer can be compared with it."""


class NoValue(NoFraction):
    """The expression divides by zero, so only the same text is equal to it."""


class NotReal(NoValue):
    """A root or a logarithm of a real number is not real here: this point lies outside the domain."""


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
    root = Fraction(_whole_root(value.numerator, int(index)), _whole_root(value.denominator, int(index)))
    if root ** int(index) != value:
        raise NotRational
    return root


def _whole_root(value: int, index: int) -> int:
    if index == 2 or value < 2:
        return math.isqrt(value)
    root, better = 0, 1 << -(-value.bit_length() // index)
    while better < root or not root:  # Newton's method, from above
        root = better
        better = ((index - 1) * root + value // root ** (index - 1)) // index
    return root


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise NotRational
    if value * value.numerator.bit_length() > 2 * MAX_BITS:
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
    "+": lambda a, b: a + b, "-": lambda a: -a, "*": lambda a, b: a * b, "/": _divide, "^": _power, "root": _root,
    "factorial": _factorial, "binomial": _binomial, "percent": lambda a: a / 100, "abs": abs, "max": max, "min": min,
    "floor": lambda a: Fraction(math.floor(a)), "ceil": lambda a: Fraction(math.ceil(a)),
    "mod": lambda a, b: a - b * math.floor(_divide(a, b)), "gcd": _common(math.gcd), "lcm": _common(math.lcm),
}  # fmt: skip


def modular(expr: Expr, point: dict[str, int], prime: int) -> int:
    """The value of a rational function modulo a large prime: two functions that agree at a random point are equal."""
    if isinstance(expr, Number):
        return expr.value.numerator * _inverse(expr.value.denominator, prime) % prime
    if isinstance(expr, Symbol):
        if expr.name not in point:
            raise NotRational
        return point[expr.name]
    if expr.name in ("^", "factorial", "binomial"):
        try:
            top, *rest = map(exact, expr.args[expr.name == "^" :])
        except (NoValue, TooLarge) as error:
            raise NotRational from error
        if any(value.denominator != 1 for value in (top, *rest)):
            raise NotRational
        if expr.name != "^":
            return _product(int(top), int(rest[0] if rest else top), not rest, prime)
        if abs(top) > 2**64:
            raise NotRational
        base = modular(expr.args[0], point, prime)
        return pow(base if top >= 0 else _inverse(base, prime), abs(int(top)), prime)
    if expr.name not in ("+", "-", "*", "/"):
        raise NotRational
    values = [modular(arg, point, prime) for arg in expr.args]
    if expr.name == "/":
        return values[0] * _inverse(values[1], prime) % prime
    return {"+": sum(values), "-": -values[0], "*": values[0] * values[-1]}[expr.name] % prime


def _product(top: int, count: int, factorial: bool, prime: int) -> int:
    """`top!`, or the number of ways to choose `count` of them, modulo a prime."""
    count = count if factorial else min(count, top - count)
    if not 0 <= count <= _LONGEST_PRODUCT:
        raise NotRational
    above = below = 1
    for at in range(count):
        above = above * (top - at) % prime
        below = 1 if factorial else below * (at + 1) % prime
    return above * _inverse(below, prime) % prime


def _inverse(value: int, prime: int) -> int:
    if value % prime == 0:
        raise NoValue
    return pow(value, -1, prime)


def same_rational_function(one: Expr, other: Expr, ratio: bool = False) -> bool | None:
    """Whether two expressions are the same rational function, or in a constant ratio; None if one is not rational."""
    generator, names = random.Random(2), sorted(letters_of(one) | letters_of(other))
    try:
        for prime in _PRIMES:
            points = [{name: generator.randrange(2, prime) for name in names} for _ in range(1 + ratio)]
            (above, below), *more = [(modular(one, point, prime), modular(other, point, prime)) for point in points]
            if above != below and not ratio or any((above * d - below * c) % prime for c, d in more):
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


def differ(one: Expr, other: Expr, digits: bool = False) -> bool:
    """Whether two numbers said to be equal are too far apart for a rounding, or for a wrong last digit of one."""
    first, second = (_real(side, digits) for side in (one, other))
    if first is None or second is None:
        return False
    apart = abs(first - second)
    decimal = any(decimal_digits(side) for side in (one, other))
    close = decimal and apart * 50 < max(abs(first), abs(second))
    return not close and apart >= max(map(_last_place, (one, other))) and apart > 0


def _real(expr: Expr, digits: bool) -> Fraction | None:
    """A number as a fraction, with `digits` also near one that has none; None where it is not real."""
    try:
        return exact(expr)
    except NotRational:
        if not digits:
            return None
    value = numeric(expr, {}, 60)
    return None if value.imag else Fraction(int(value.real * 10**30), 10**30)


def _last_place(expr: Expr) -> Fraction:
    """The value of the last digit that counts; 0 for what is no decimal or whole number."""
    if isinstance(expr, Call) and expr.name == "-":
        return _last_place(expr.args[0])
    if written := decimal_digits(expr):
        return Fraction(10) ** -written[1]
    if not isinstance(expr, Number) or expr.value.denominator != 1:
        return Fraction()
    digits = str(expr.value or 1)
    return Fraction(10) ** (len(digits) - len(digits.rstrip("0")))


def is_finite_decimal(value: Fraction) -> bool:
    return 10 ** value.denominator.bit_length() % value.denominator == 0


# By many digits, in a worker.


def numeric(expr: Expr, point: dict[str, Fraction], digits: int, real: bool = False) -> Any:
    """The finite value at a point with this many digits; raises NoValue where there is none, NotReal if asked to."""
    return _sized(expr, point, digits, real)[0]


def _sized(expr: Expr, point: dict[str, Fraction], digits: int, real: bool = False) -> tuple[Any, int]:
    """The value, and the most digits before or behind the point of any value in the expression."""
    import mpmath

    with mpmath.workdps(digits):
        numbers = _Numeric(point, mpmath.mp, real)
        try:
            value = numbers.of(expr)
        except (ZeroDivisionError, ValueError, TypeError, OverflowError, NotImplementedError) as error:
            raise NoValue from error
        if not mpmath.isfinite(value):
            raise NoValue
        return value, int(numbers.size * 0.302)


class _Numeric:
    def __init__(self, point: dict[str, Fraction], mp: Any, real: bool):
        self.point, self.mp, self.real = point, mp, real
        self.size = 0  # bits before or behind the point

    def of(self, expr: Expr) -> Any:
        value = self.value(expr)
        size = abs(self.mp.mag(value)) if value and self.mp.isfinite(value) else 0
        self.size = max(self.size, int(size))
        return value

    def value(self, expr: Expr) -> Any:
        mp = self.mp
        if isinstance(expr, Number):
            return mp.mpf(expr.value.numerator) / expr.value.denominator
        if isinstance(expr, Symbol):
            if expr.name in self.point:
                return mp.mpf(self.point[expr.name].numerator) / self.point[expr.name].denominator
            return {"pi": mp.pi, "e": mp.e, "i": mp.mpc(0, 1), "infinity": mp.inf}[expr.name] * 1
        values = [self.of(arg) for arg in expr.args]
        if expr == _SIZE_OF_A_COMPLEX_NUMBER:
            return self.unknown("|z|()", values)
        if not all(mp.isfinite(value) for value in values):
            raise NoValue
        if expr.name.endswith("()"):
            return self.unknown(expr.name, values)
        power_of_e = expr.name == "^" and expr.args[0] == Symbol("e") and abs(values[1]) < _LARGEST
        value = mp.exp(values[1]) if power_of_e else self.apply(expr.name, values)
        if self.real and expr.name in _REAL_ONLY and mp.im(value) != 0 and not any(map(mp.im, values)):
            raise NotReal
        return value

    def unknown(self, name: str, values: list) -> Any:
        """The value of an unknown function: of an arbitrary curve, which depends on the name of the function."""
        slope = random.Random(name).randrange(100, 900)
        return sum(self.mp.cos(value * slope / 300 + at) for at, value in enumerate(values)) + self.mp.mpf(slope) / 7

    def apply(self, name: str, values: list) -> Any:
        mp = self.mp
        first, second = [*values, None][:2]
        if name in ("floor", "ceil", "mod", "max", "min", "gcd", "lcm") and any(map(mp.im, values)):
            raise NoValue
        if name in ("gcd", "lcm", "det", "deg"):  # treated as unknown functions
            return self.unknown(name + "()", sorted(values, key=float))
        if name in _GROWING and max(map(abs, values)) > _LARGEST:
            raise TooLarge
        if name in _SATURATED:
            self.size = max(self.size, int(2 * abs(first)))  # 1 - tanh(x) is about e^{-2x}
        if name == "^":
            return self.power(first, second)
        if name == "root":
            return self.power(second, 1 / first)
        if name == "log":
            return mp.log(first) / mp.log(10) if second is None else mp.log(second) / mp.log(first)
        if name in ("/", "mod") and second == 0:
            raise NoValue
        below = {"tan": mp.cos, "sec": mp.cos, "cot": mp.sin, "csc": mp.sin}.get(name)
        if below is not None and abs(below(first)) < mp.mpf(10) ** (-mp.dps // 2):
            raise NoValue
        functions = {
            "+": lambda: first + second, "-": lambda: -first, "*": lambda: first * second, "/": lambda: first / second,
            "percent": lambda: first / 100, "degrees": lambda: first * mp.pi / 180, "abs": lambda: abs(first),
            "floor": lambda: mp.floor(first + mp.mpf(10) ** (-mp.dps // 2)),
            "ceil": lambda: mp.ceil(first - mp.mpf(10) ** (-mp.dps // 2)),
            "mod": lambda: first - second * mp.floor(first / second),
            "max": lambda: max(values), "min": lambda: min(values),
            "lg": lambda: mp.log(first) / mp.log(10), "arccot": lambda: mp.pi / 2 - mp.atan(first),
        }  # fmt: skip
        if name in functions:
            return functions[name]()
        return getattr(mp, "log" if name == "ln" else name.replace("arc", "a"))(*values)

    def power(self, base: Any, exponent: Any) -> Any:
        """base^exponent; an odd root of a negative number is real, as in school."""
        mp = self.mp
        if base == 0 and mp.re(exponent) <= 0:
            raise NoValue
        with mp.workdps(15):
            if base != 0 and abs(exponent) * max(1, abs(mp.log(base))) > _LARGEST:
                raise TooLarge
        if mp.im(base) == 0 and mp.re(base) < 0 and mp.im(exponent) == 0:
            text = mp.nstr(exponent, 30, strip_zeros=False, min_fixed=-50, max_fixed=50)
            fraction = Fraction(text).limit_denominator(1000)
            close = abs(mp.mpf(fraction.numerator) / fraction.denominator - exponent) < mp.mpf(10) ** (-mp.dps // 2)
            if close and fraction.denominator % 2 == 1 and fraction.denominator > 1:
                return (-1) ** fraction.numerator * mp.power(-base, exponent)
        return mp.power(base, exponent)


def _enough(size: int) -> int:
    """Digits with which the difference of 1/N and 1/(N+1) shows beside N, and more, for an N of this size."""
    return 60 + (3 * size + min(size, 1_000) if size > 10 else 0)


def _agree(one: Expr, other: Expr, point: dict[str, Fraction], real: bool = False, most: int = _MOST_DIGITS) -> bool:
    """Whether the difference shrinks when it is computed with more digits, as only that of equal values does."""
    sizes = []
    for side in (one, other):
        try:
            sizes.append(_sized(side, point, 60, real)[1])
            if sizes[-1] > most:
                raise TooLarge
        except TooLarge as error:
            raise error if sizes else GoldTooLarge from error
    first = _enough(max(sizes))
    difference = Call("+", (one, Call("-", (other,))))
    rough, fine = (abs(numeric(difference, point, digits, real)) for digits in (first, first + 90))
    import mpmath

    with mpmath.workdps(30):
        least = mpmath.mpf(10) ** (max(sizes) - first)  # what rounding may leave
        return bool(fine <= max(rough, least) * mpmath.mpf(10) ** -60)


def _agree_at_points(one: Expr, other: Expr, real: bool) -> bool | None:
    """Whether they agree at points where values are of ordinary size, else at any. None if no point counts."""
    agreed = _agree_at(one, other, real, _ORDINARY_DIGITS)
    return _agree_at(one, other, real, _MOST_DIGITS) if agreed is None else agreed


def _agree_at(one: Expr, other: Expr, real: bool, most: int) -> bool | None:
    """At positive points first, because of roots; of both signs for abs, floor and such. None if no point counts."""
    corners = bool(_WITH_CORNERS & (names_of(one, Call) | names_of(other, Call)))
    agreed, needed, large = 0, 12 if corners else 3, False
    for point, near in _points(letters_of(one) | letters_of(other), corners):
        try:
            if not _agree(one, other, point, real, most):
                return False
        except TooLarge:
            if near and not corners and most == _MOST_DIGITS:
                raise
            large = True
            continue
        except NotReal:
            continue
        except NoValue:
            if _has_value(one, point) != _has_value(other, point):
                return False
            continue
        agreed += 1
        if agreed == needed:
            return True
    return not corners if agreed and not (large and most < _MOST_DIGITS) else None


def _points(names: set[str], corners: bool) -> Iterator[tuple[dict[str, Fraction], bool]]:
    """Random points, and whether each is near 1. A floor of n/100 is 0 there, and a root of (x-5)^2 is 5-x."""
    generator = random.Random(7)
    for attempt in range(60):
        sign = generator.choice((1, -1)) if corners or attempt >= 40 else 1
        size = 30 ** (attempt % 4) if corners else (1, 12, 1, Fraction(1, 4))[attempt % 4]  # e^{x^{12}} is large at 2
        numbers = {name: Fraction(generator.randrange(300, 2600), 997) for name in sorted(names)}
        yield {name: sign * size * number for name, number in numbers.items()}, size == 1


def _has_value(expr: Expr, point: dict[str, Fraction]) -> bool:
    try:
        numeric(expr, point, 30)
    except NoValue:
        return False
    return True


def proportional(one: Expr, other: Expr) -> int | None:
    """The sign of the constant factor between two expressions; None if their ratio is no real constant."""
    if same_rational_function(one, other, ratio=True) is False:
        return None
    digits = 60
    for real in (True, False):
        for most in (_ORDINARY_DIGITS, _MOST_DIGITS):
            ratios, size = _ratios(one, other, real, digits, most)
            if size > 10:
                digits = _enough(size)
                ratios, _ = _ratios(one, other, real, digits, most)
            if len(ratios) == 4:
                break
        if ratios:
            break
    if len(ratios) < 4 or ratios[0].imag:
        return None
    import mpmath

    with mpmath.workdps(digits):
        if any(abs(ratio - ratios[0]) > abs(ratios[0]) * mpmath.mpf(10) ** (20 - digits) for ratio in ratios):
            return None
    return 1 if ratios[0].real > 0 else -1 if ratios[0].real < 0 else None


def _ratios(one: Expr, other: Expr, real: bool, digits: int, most_digits: int) -> tuple[list, int]:
    """Four of them, and the most digits of any value; fewer where the second alone is 0, or too few points count."""
    import mpmath

    ratios: list = []
    most = 0
    for point, near in _points(letters_of(one) | letters_of(other), corners=False):
        try:
            (above, size), (below, other_size) = (_sized(side, point, digits, real) for side in (one, other))
            if max(size, other_size) > most_digits:
                raise TooLarge
        except NoValue:
            continue
        except TooLarge:
            if near and most_digits == _MOST_DIGITS:
                raise
            continue
        most = max(most, size, other_size)
        if abs(below) > 1e-40:
            with mpmath.workdps(digits):
                ratios.append(above / below)
        elif abs(above) > 1e-40:
            return [], most
        if len(ratios) == 4:
            break
    return ratios, most


def same_value(one: Expr, other: Expr, enough: int = ROUNDED_DIGITS, digits: bool = False) -> bool:
    """Whether two expressions are equal; without `digits` raises NeedsDigits where fractions cannot tell."""
    if one == other:
        return True
    if letters_of(one) or letters_of(other):
        agreed = same_rational_function(one, other)
        if agreed is None and not digits:
            raise NeedsDigits
        if agreed is None:
            agreed = _agree_at_points(one, other, real=True)
        return _agree_at_points(one, other, real=False) is True if agreed is None else agreed
    values: list[Fraction | None] = []
    large = False
    for expr in (one, other):
        try:
            values.append(exact(expr))
        except NoValue:
            return False
        except (NotRational, TooLarge) as error:
            values.append(None)
            large |= isinstance(error, TooLarge)
    first, second = values
    if first is not None and second is not None:
        return (
            first == second
            or (not is_finite_decimal(first) and rounds_to(other, first, enough))
            or (not is_finite_decimal(second) and rounds_to(one, second, enough))
        )
    if large and (known := same_rational_function(one, other)) is not None:
        return known  # 2^{100000} - 1
    if not digits:
        raise NeedsDigits
    if _agree(one, other, {}):
        return True
    if first is None and second is None:
        return False
    decimal, irrational = (one, other) if second is None else (other, one)
    written = decimal_digits(decimal)
    if written is None:
        return False
    places = 60 + sum(map(abs, written))
    value = numeric(irrational, {}, places)
    if value.imag != 0:
        return False
    import mpmath

    with mpmath.workdps(places):
        scale = 10 ** (places - 10)
        return rounds_to(decimal, Fraction(int(mpmath.floor(value.real * scale)), scale), enough)
