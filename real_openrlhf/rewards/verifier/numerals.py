r"""Numbers in rarer spellings as plain ones: `0.\overline{3}`, `45^\circ 30'`, `3 million`, `C_{10}^{3}`."""

import re
from fractions import Fraction

_MAX_PERIOD = 40
_OVERLINED = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar) ?(?:\{(\d{1,40})\}|(\d))")
_DOTTED = re.compile(r"(\d*)\.(\d*)\\dot ?\{?(\d)\}?(?:(\d{0,38})\\dot ?\{?(\d)\}?)?")
_PARENTHESISED = re.compile(r"(?<![\d}])(\d+)\.(\d*)\((\d{1,40})\)(?![\d^!(])")
_CONTINUED = re.compile(r"(?<![\d.])(\d*)\.(\d{1,99}) ?\\ldots(?! ?[\d,])")
_ENOUGH_DIGITS = 6  # of a decimal that goes on without a period: fewer do not say which number it is
_MINUTES = re.compile(
    r"(?<![\d.])(\d{1,4})\^\{\\circ\} ?(\d{1,2})(?:'|\^\{\\prime\})"
    r"(?: ?(\d{1,2})(?:''|\^\{\\prime\\prime\}))?"
)
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SCALED = re.compile(rf"(?<=[\d}}]) ?(?:\\text\{{ *({'|'.join(_SCALES)})\b *([^{{}}]*)\}}|({'|'.join(_SCALES)})\b)")
_COMBINATIONS = re.compile(
    r"(?<![a-zA-Z\\])(?:\{?\}?[_^]\{(\d+)\})C_\{(\d+)\}|(?<![a-zA-Z\\])C_\{(\d+)\}\^\{(\d+)\}"
    r"|(?<![a-zA-Z\\])C\^\{(\d+)\}_\{(\d+)\}"
)


def plain(text: str) -> str:
    """A normalised text with such numbers written as fractions, powers and binomials."""
    if "." in text:
        text = _OVERLINED.sub(lambda number: _fraction(number[1], number[2], number[3] or number[4]), text)
        text = _DOTTED.sub(_dotted, text)
        text = _PARENTHESISED.sub(lambda number: _fraction(number[1], number[2], number[3]), text)
        text = _CONTINUED.sub(_continued, text)
    text = _MINUTES.sub(_degrees, text)
    text = _SCALED.sub(_scaled, text)
    return _COMBINATIONS.sub(_binomial, text)


def _fraction(whole: str, fixed: str, period: str) -> str:
    head = int(whole + fixed or "0")
    value = Fraction(int(whole + fixed + period) - head, 10 ** len(fixed) * (10 ** len(period) - 1))
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}"


def _dotted(number: re.Match) -> str:
    return _fraction(number[1], number[2], number[3] + (number[4] or "") + (number[5] or ""))


def _continued(number: re.Match) -> str:
    """`0.1666\\ldots` shows its period, `3.14159\\ldots` its first digits, `0.3\\ldots` neither."""
    whole, digits = number[1], number[2]
    for length in range(1, min(len(digits) // 2, _MAX_PERIOD) + 1):
        period = digits[-length:]
        shown = len(digits)
        while shown and digits[shown - 1] == period[(shown - 1 - len(digits)) % length]:
            shown -= 1
        if len(digits) - shown >= max(2 * length, 3):
            return _fraction(whole, digits[:-length], period)
    significant = (whole + digits).lstrip("0")
    return f"{whole}.{digits}" if len(significant) >= _ENOUGH_DIGITS else number[0]


def _degrees(angle: re.Match) -> str:
    value = int(angle[1]) + Fraction(int(angle[2]), 60) + Fraction(int(angle[3] or 0), 3600)
    return f"\\frac{{{value.numerator}}}{{{value.denominator}}}^{{\\circ}}"


def _scaled(word: re.Match) -> str:
    unit = f"\\text{{{word[2]}}}" if word[2] else ""
    return f"\\cdot 10^{{{_SCALES[word[1] or word[3]]}}}{unit}"


def _binomial(symbol: re.Match) -> str:
    top, bottom = (symbol[1] or symbol[3] or symbol[6]), (symbol[2] or symbol[4] or symbol[5])
    return f"\\binom{{{top}}}{{{bottom}}}"
