r"""The unit at the end of an answer: `12\text{cm}^{2}`, `15students`, `35^{\circ}`, `40\%`."""

import re
from fractions import Fraction
from typing import NamedTuple


class Unit(NamedTuple):
    """What is measured, as powers of base units, and how many of those one unit is."""

    powers: tuple[tuple[str, int], ...]
    size: Fraction = Fraction(1)


PERCENT = Unit((("%", 1),))
# Base unit -> spelling -> size. Units that are not here are ignored: the question says what is counted.
_SIZES: dict[str, dict[str, int | str]] = {
    "m": {"m meter metre": 1, "cm centimeter centimetre": "1/100", "mm millimeter millimetre": "1/1000",
          "km kilometer kilometre": 1000},
    "in": {"in inch inche": 1, "ft foot feet": 12, "yd yard": 36, "mi mile": 63360},
    "s": {"s sec second": 1, "min minute": 60, "h hr hour": 3600, "day": 86400, "week": 604800},
    "month": {"month": 1, "yr year": 12},
    "g": {"g gram": 1, "kg kilogram": 1000},
    "lb": {"lb pound": 1},
    "L": {"l liter litre": 1, "ml milliliter millilitre": "1/1000"},
    "deg": {"degree deg": 1},
    "rad": {"rad radian": 1},
    "%": {"percent pct percentage": 1},
    "dollar": {"dollar usd": 1, "cent": "1/100"},
    "N": {"newton n": 1}, "J": {"joule j": 1}, "W": {"watt w": 1}, "Hz": {"hz hertz": 1}, "K": {"kelvin k": 1},
    "Pa": {"pascal pa": 1},
}  # fmt: skip
_UNITS = {
    spelling: (base, Fraction(size))
    for base, sizes in _SIZES.items()
    for spellings, size in sizes.items()
    for spelling in spellings.split()
}
_UNIT = re.compile(
    r"^(?P<value>.*?[\d)}a-zA-Z|!])\s*(?:\\cdot)?\s*"
    r"(?P<unit>(?:\\text\{[^{}]*\}(?:\^\{-?\d\})?(?:[\s/]|\\cdot(?![a-zA-Z]))*)+|\\%|%|"
    r"\^\{\\circ\}(?:\s*(?:\\text\{[^{}]*\}|[CFK]))?)$",
    re.DOTALL,
)
_BARE_UNIT = re.compile(
    r"^(?P<value>[\d.,\s/+-]*[\d](?:\^\{\d+\})?|.*\})\s*"
    r"(?P<unit>(?:(?:square|cubic|sq\.?) ?)?(?:cm|mm|km|inch(?:es)?|feet|foot|ft|yards?|miles?|mph|degrees?|percent|"
    r"pct|percentage|dollars?|cents?|meters?|hours?|minutes?|seconds?|days?|weeks?|months?|years?|grams?|kg|units?|Hz)"
    r"(?:\^\{\d\})?)$",
    re.DOTALL,
)
_BARE_WORD = re.compile(r"^(?P<value>[\d.,\s/-]*\d)\s*(?P<unit>[a-z]{4,})$")  # 15 students
_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])|\\text\{cis\}")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_FACTOR = re.compile(r"(/|\bper\b)|(?:(square|sq|cubic)\s+)?([a-z]+)(?:\^\{?(-?\d)\}?)?")
_NAMED_POWERS = {"square": 2, "sq": 2, "cubic": 3}


def value_and_unit(text: str) -> tuple[str, Unit | None]:
    """The value, and the unit where it is a known one; the text itself where there is none."""
    match = _UNIT.match(text) or _BARE_UNIT.match(text) or _counted(text)
    if match is None or ("\\circ" in match["unit"] and _ANGLE_FUNCTION.search(text)):
        return text, None
    return match["value"].strip(), _known(match["unit"])


def in_one_unit(gold: str, answer: str) -> tuple[str, str] | None:
    """Both values, in the same unit where both have known ones; None where the two measure different things."""
    (gold_value, gold_unit), (value, unit) = value_and_unit(gold), value_and_unit(answer)
    if gold_unit and unit and gold_unit != unit:
        if gold_unit.powers != unit.powers:
            return None
        return f"({gold_value})\\cdot({gold_unit.size})", f"({value})\\cdot({unit.size})"
    return gold_value, value


def _known(unit: str) -> Unit | None:
    if r"\circ" in unit:
        return None if unit.rstrip("}")[-1:] in "CFK" else Unit((("deg", 1),))
    words = unit.replace("\\%", "percent").replace("%", "percent").replace(r"\cdot", " ")
    words = _TEXT.sub(r"\1", words).lower().replace("mph", "mi/h").replace(".", "")
    powers: dict[str, int] = {}
    size, sign = Fraction(1), 1
    for below, named_power, word, power in _FACTOR.findall(words):
        if below:
            sign = -1
            continue
        base, factor = _UNITS.get(word) or _UNITS.get(word.removesuffix("s")) or ("", Fraction(1))
        if not base:
            return None
        exponent = sign * int(power or _NAMED_POWERS.get(named_power, 1))
        powers[base] = powers.get(base, 0) + exponent
        size *= factor**exponent
    return Unit(tuple(sorted(powers.items())), size) if powers else None


def _counted(text: str) -> re.Match | None:
    """`15students`, but not `24abcd`: an English word has a vowel and is not in alphabetical order."""
    match = _BARE_WORD.match(text)
    if match is None or not set(match["unit"]) & set("aeiou") or sorted(match["unit"]) == list(match["unit"]):
        return None
    return match
