r"""The unit at the end of an answer: `12\text{cm}^{2}`, `15students`, `35^{\circ}`, `40\%`."""

import re

# Spelling -> unit. Two answers whose units are both known and differ are different; other units are ignored.
_UNITS = {
    spelling: unit
    for unit, spellings in {
        "cm": "cm centimeter centimetre", "mm": "mm millimeter millimetre", "km": "km kilometer kilometre",
        "m": "m meter metre", "in": "in inch inche", "ft": "ft foot feet", "yd": "yd yard", "mi": "mi mile",
        "s": "s sec second", "min": "min minute", "h": "h hr hour", "day": "day", "week": "week", "month": "month",
        "year": "yr year", "g": "g gram", "kg": "kg kilogram", "lb": "lb pound", "L": "l liter litre",
        "deg": "degree deg", "%": "percent pct percentage", "dollar": "dollar usd", "cent": "cent",
        "rad": "rad radian", "N": "newton", "J": "joule", "W": "watt", "Hz": "hz hertz", "K": "kelvin", "Pa": "pascal",
        "mph": "mph",
    }.items()
    for spelling in spellings.split()
}  # fmt: skip
_UNIT = re.compile(
    r"^(?P<value>.*[\d)}a-zA-Z|!])\s*(?:\\cdot)?\s*"
    r"(?P<unit>(?:\\text\{[^{}]*\}(?:\^\{-?\d\})?(?:[\s/]|\\cdot ?)*)+|\\%|%|"
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
_POWER = re.compile(r"\^\{(-?\d)\}")


def value_and_unit(text: str) -> tuple[str, str]:
    """The value, and the unit where it is a known one; the text itself where there is none."""
    match = _UNIT.match(text) or _BARE_UNIT.match(text) or _counted(text)
    if match is None or ("\\circ" in match["unit"] and _ANGLE_FUNCTION.search(text)):
        return text, ""
    unit = match["unit"].replace("^{\\circ}", "degree").replace("\\%", "percent").replace("%", "percent")
    word = re.sub(r"[^a-z]", "", _TEXT.sub(r"\1", unit).lower())
    known = _UNITS.get(word) or _UNITS.get(word.removesuffix("s")) or ""
    power = _POWER.search(match["unit"])
    return match["value"].strip(), known + (power[1] if power and known else "")


def _counted(text: str) -> re.Match | None:
    """`15students`, but not `24abcd`: an English word has a vowel and is not in alphabetical order."""
    match = _BARE_WORD.match(text)
    if match is None or not set(match["unit"]) & set("aeiou") or sorted(match["unit"]) == list(match["unit"]):
        return None
    return match
