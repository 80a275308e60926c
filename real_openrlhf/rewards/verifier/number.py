"""Arithmetic on answers that are rational numbers: no floats, no eval, every result bounded."""

import math
import re
from fractions import Fraction

MAX_BITS = 40_000  # 2^{1009} and 100! are answers; a tower of powers is not
_MAX_DEPTH = 40
_MAX_DIGITS = 4_000
# How many significant digits a decimal needs to stand for a value that has no finite decimal.
ROUNDED_DIGITS = 6

_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:,\d{3})+(?![\d,])|(?: \d{3})+(?![\d ]))")
_MIXED = re.compile(r"(?<![\d.])(\d+)(?:\\frac\{(\d+)\}\{(\d+)\}| (\d+)/(\d+))")
_LEXEME = re.compile(r"\d+(?:\.\d+)?|\\[a-zA-Z]+|\\.|\S")
_DECIMAL = re.compile(
    r"(?P<sign>-?)(?P<digits>\d+\.\d+)(?:\\cdot ?10\^\{(?P<power>[+-]?\d{1,5})\})?|"
    r"(?P<sign2>-?)(?P<digits2>\d+)\\cdot ?10\^\{(?P<power2>[+-]?\d{1,5})\}"
)


class TooLarge(Exception):
    """The text is a number, but one with more digits than any answer has."""


class NoValue(Exception):
    """The text is arithmetic that divides by zero: it is equal to nothing but itself."""


def rational(text: str) -> Fraction | None:
    """The exact value of a normalised text of plain arithmetic; None for anything else.

    Raises TooLarge for towers of powers and NoValue for a division by zero.
    """
    text = _THOUSANDS.sub(lambda number: re.sub("[ ,]", "", number[0]), text)
    text = _MIXED.sub(_sum_of_mixed, text)
    try:
        return _Arithmetic(text).value()
    except ValueError:  # no number
        return None
    except ZeroDivisionError:
        raise NoValue from None


def _sum_of_mixed(number: re.Match) -> str:
    r"""`1\frac{4}{5}` and `2 1/2` are sums, not products; `2\frac{3}{2}` is a product."""
    above, below = int(number[2] or number[4]), int(number[3] or number[5])
    return f"({number[1]}+\\frac{{{above}}}{{{below}}})" if above < below else number[0]


def same_rational(gold: str, answer: str, gold_value: Fraction, value: Fraction, enough: int = ROUNDED_DIGITS) -> bool:
    """Equal, or one is a decimal that is the other, which has no finite decimal, rounded to its last digit."""
    return (
        gold_value == value
        or (not _is_finite_decimal(gold_value) and rounds_to(answer, gold_value, enough))
        or (not _is_finite_decimal(value) and rounds_to(gold, value, enough))
    )


def significant_digits(decimal: str) -> int:
    """How many significant digits a decimal is written with; 0 for what is none."""
    written = _DECIMAL.fullmatch(decimal)
    return len((written["digits"] or written["digits2"]).replace(".", "").lstrip("0")) if written else 0


def rounds_to(decimal: str, value: Fraction, enough: int = ROUNDED_DIGITS) -> bool:
    """Whether `decimal` is written with enough digits and is `value` cut or rounded at its last one."""
    written = _DECIMAL.fullmatch(decimal)
    if written is None or significant_digits(decimal) < enough:
        return False
    digits = written["digits"] or written["digits2"]
    places = len(digits.partition(".")[2]) - int(written["power"] or written["power2"] or 0)
    if abs(places) > _MAX_DIGITS:
        return False
    approximation = rational(decimal)
    if approximation is None or (approximation < 0) != (value < 0):
        return False
    missing = (abs(value) - abs(approximation)) * Fraction(10) ** places  # in units of the last digit
    return Fraction(-1, 2) <= missing < 1


def _is_finite_decimal(value: Fraction) -> bool:
    return 10 ** value.denominator.bit_length() % value.denominator == 0


def _checked(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooLarge
    return value


class _Arithmetic:
    """Recursive descent over `+ - * / ^ !`, fractions, binomials, parentheses and mixed numbers."""

    def __init__(self, text: str):
        self.parts: list[str] = _LEXEME.findall(text)
        if any(len(part) > _MAX_DIGITS for part in self.parts):
            raise TooLarge
        self.position = 0
        self.depth = 0

    def value(self) -> Fraction:
        result = self._sum()
        if self.position < len(self.parts):
            raise ValueError
        return result

    def _peek(self) -> str:
        return self.parts[self.position] if self.position < len(self.parts) else ""

    def _take(self, expected: str = "") -> str:
        token = self._peek()
        if not token or (expected and token != expected):
            raise ValueError
        self.position += 1
        return token

    def _sum(self) -> Fraction:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError
        total = self._product()
        while self._peek() in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            total = _checked(total + sign * self._product())
        self.depth -= 1
        return total

    def _product(self) -> Fraction:
        total = self._power()
        while True:
            token = self._peek()
            if token in (r"\cdot", "/"):
                self._take()
                factor = self._power()
                total = _checked(total * factor if token == r"\cdot" else total / factor)
            elif token in ("(", r"\frac", r"\binom"):
                total = _checked(total * self._power())
            else:
                return total

    def _power(self) -> Fraction:
        if self._peek() in ("-", "+"):
            return self._power() if self._take() == "+" else -self._power()
        base = self._factorial()
        if self._peek() != "^":
            return base
        self._take()
        return self._raised(base, self._group("{", "}"))

    @staticmethod
    def _raised(base: Fraction, exponent: Fraction) -> Fraction:
        if exponent.denominator != 1:
            raise ValueError
        bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
        if bits > 1 and bits * abs(exponent) > MAX_BITS:
            raise TooLarge
        return base ** (exponent.numerator if abs(base) != 1 else exponent.numerator % 2)

    def _factorial(self) -> Fraction:
        value = self._atom()
        while self._peek() == "!":
            self._take()
            if value.denominator != 1 or value < 0 or self._peek() == "!":
                raise ValueError  # 7!! is a double factorial
            if value > 3_000:
                raise TooLarge
            value = _checked(Fraction(math.factorial(value.numerator)))
        return value

    def _atom(self) -> Fraction:
        token = self._take()
        if token[0].isdigit():
            return Fraction(token)
        if token == r"\frac":
            numerator, denominator = self._group("{", "}"), self._group("{", "}")
            return _checked(numerator / denominator)
        if token == r"\binom":
            return self._binomial(self._group("{", "}"), self._group("{", "}"))
        if token in ("(", "{"):
            self.position -= 1
            return self._group(token, ")" if token == "(" else "}")
        raise ValueError

    @staticmethod
    def _binomial(top: Fraction, bottom: Fraction) -> Fraction:
        if top.denominator != 1 or bottom.denominator != 1 or top < 0 or bottom < 0:
            raise ValueError
        if min(bottom, top - bottom) > 5_000 or top.numerator.bit_length() > 64:
            raise TooLarge
        return _checked(Fraction(math.comb(top.numerator, bottom.numerator)))

    def _group(self, opening: str, closing: str) -> Fraction:
        self._take(opening)
        value = self._sum()
        self._take(closing)
        return value
