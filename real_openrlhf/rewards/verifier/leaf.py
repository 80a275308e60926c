"""Two leaves of an answer compared by text and exact arithmetic: decides most pairs, and says when it cannot."""

import re
from fractions import Fraction

from real_openrlhf.rewards.verifier import exact
from real_openrlhf.rewards.verifier.normalise import tokens


class Undecided(Exception):
    """Neither equal nor different by text and arithmetic alone: algebra has to decide."""


# Spelling -> unit. Two answers whose units are both known and differ are different; other units are ignored.
_UNITS = {
    spelling: unit
    for unit, spellings in {
        "cm": "cm centimeter centimetre", "mm": "mm millimeter millimetre", "km": "km kilometer kilometre",
        "m": "m meter metre", "in": "in inch inche", "ft": "ft foot feet", "yd": "yd yard", "mi": "mi mile",
        "s": "s sec second", "min": "min minute", "h": "h hr hour", "day": "day", "week": "week", "month": "month",
        "year": "yr year", "g": "g gram", "kg": "kg kilogram", "lb": "lb pound", "L": "l liter litre",
        "deg": "degree deg", "%": "percent", "dollar": "dollar", "cent": "cent", "rad": "rad radian",
        "N": "newton", "J": "joule", "W": "watt", "Hz": "hz hertz", "K": "kelvin", "Pa": "pascal", "mph": "mph",
    }.items()
    for spelling in spellings.split()
}  # fmt: skip
_UNIT = re.compile(
    r"^(?P<value>.*[\d)}a-zA-Z|!])\s*(?:\\cdot)?\s*"
    r"(?P<unit>(?:\\text\{[^{}]*\}(?:\^\{-?\d\})?[\s/]*)+|\\%|%|\^\{\\circ\}(?:\s*(?:\\text\{[^{}]*\}|[CFK]))?)$",
    re.DOTALL,
)
_BARE_UNIT = re.compile(
    r"^(?P<value>[\d.,\s/+-]*[\d](?:\^\{\d+\})?|.*\})\s*"
    r"(?P<unit>(?:cm|mm|km|inch(?:es)?|feet|foot|ft|yards?|miles?|mph|degrees?|percent|dollars?|cents?|meters?|hours?|"
    r"minutes?|seconds?|days?|weeks?|months?|years?|grams?|kg|units?|Hz)(?:\^\{\d\})?)$",
    re.DOTALL,
)
_ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_ONLY_TEXT = re.compile(r"^(?!-)(?:\\text\{[^{}]*\}|[a-zA-Z'\s.-])+$")
_LEADING_TEXT = re.compile(r"^(?:\\text\{[^{}]*\}[\s:=]*)+(?=[^\s:=^_/])")
_CHOICE = re.compile(r"^(?:\\text\{)?\(?([A-Z])\)?\.?\}?$")
_CHOICE_WITH_VALUE = re.compile(r"^(?:\\text\{)?\(([A-Z])\)\}?")
_BASED = re.compile(r"^\(?((?=[A-F]*\d)[0-9A-F]+)\)?_\{(?:\\text\{)?(\d+|[a-z]+)\}?\}$")
_BASE_TEXT = re.compile(r"^((?=[A-F]*\d)[0-9A-F]+)\\text\{\(?(?:in )?base ([a-z0-9]+)\)?\}$")
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
               "nine": "9", "twelve": "12", "sixteen": "16"}  # fmt: skip
_FUNCTION = re.compile(r"^(\\?[a-zA-Z]+(?:_\{[^{}]*\})?(?:\^\{[^{}]*\})?)\(([a-zA-Z])\)$")
_NAME = re.compile(
    r"^(?:\\angle|\\text\{[^{}]*\}|\\(?:overline|vec|hat|bar|mathbb|mathcal)\{[^{}]*\}|"
    r"\\(?!frac|sqrt|cdot|sin|cos|tan|log|ln)[a-zA-Z]+|[a-zA-Z\s']|_\{[^{}]*\}|\^\{(?:\\prime|\*|-1)+\})+"
    r"(?:\([a-zA-Z,\d]+\))?$"
)
_VARIABLE = re.compile(r"^[a-zA-Z](?:_\{[^{}]*\})?$")


def same(gold: str, answer: str) -> bool:
    """Whether two normalised leaves are equal; raises Undecided where text and arithmetic cannot tell."""
    if gold == answer:
        return True
    gold_name, gold_value = named(gold)
    name, value = named(answer)
    if gold_name and name:
        if is_equation(gold_name) or is_equation(name):
            raise Undecided  # equations, not names given to values
        renamed = _same_name(gold_name, name, value)
        return renamed is not None and _same_value(gold_value, renamed)
    if gold_name and is_equation(gold_name):
        return False  # an equation is asked for, a value is given
    return _same_value(gold_value, value)


def named(text: str) -> tuple[str, str]:
    """`x = 2 + 3 = 5` is a value, 5, with a name, x; `5 = x` too. Without `=` the name is empty."""
    sides = [side.strip() for side in _top_level_equals(text)]
    if len(sides) == 1 or not all(sides):
        return "", text
    if len(sides) == 2 and _VARIABLE.match(sides[1]) and not _NAME.match(sides[0]):
        return sides[1], sides[0]
    return sides[0], sides[-1]


def is_equation(name: str) -> bool:
    """A left side such as `2x + y`: not a name, so the whole text is an equation."""
    return not (_NAME.match(name) and not _is_product(name))


def _is_product(name: str) -> bool:
    """`SRAC` and `MR` are names or products of letters; as an equation `MR = SRMC` both sides matter."""
    return len(name) > 1 and name.isalpha()


def value_and_unit(text: str) -> tuple[str, str]:
    match = _UNIT.match(text) or _BARE_UNIT.match(text)
    if match is None or ("\\circ" in match["unit"] and _ANGLE_FUNCTION.search(text)):
        return text, ""
    unit = match["unit"].replace("^{\\circ}", "degree").replace("\\%", "percent").replace("%", "percent")
    word = re.sub(r"[^a-z]", "", _TEXT.sub(r"\1", unit).lower())
    known = _UNITS.get(word) or _UNITS.get(word.removesuffix("s")) or ""
    power = re.search(r"\^\{(-?\d)\}", match["unit"])
    return match["value"].strip(), known + (power[1] if power and known else "")


def _top_level_equals(text: str) -> list[str]:
    if "=" not in text:
        return [text]
    sides, depth = [""], 0
    for token in tokens(text):
        depth += (token in ("(", "[", "{", r"\{")) - (token in (")", "]", "}", r"\}"))
        if token == "=" and depth == 0:
            sides.append("")
        else:
            sides[-1] += token
    return sides


def _same_name(gold: str, answer: str, value: str) -> str | None:
    """The answer's value in the gold's terms (`f(t) = t` for `f(x) = x`); None where it names something else."""
    if gold == answer or r"\text" in gold or r"\text" in answer:
        return value
    gold_function, function = _FUNCTION.match(gold), _FUNCTION.match(answer)
    if gold_function and function:
        if gold_function[1] != function[1]:
            return None
        variable = gold_function[2]
        if re.search(rf"(?<![\\a-zA-Z]){variable}(?![a-zA-Z])", value):
            return None
        return re.sub(rf"(?<![\\a-zA-Z]){function[2]}(?![a-zA-Z])", variable, value)
    if (gold_function and _VARIABLE.match(answer)) or (function and _VARIABLE.match(gold)):
        return value
    return None


def _same_value(gold: str, answer: str) -> bool:
    if gold == answer:
        return True
    choice = _CHOICE.match(gold)
    if choice and _CHOICE_WITH_VALUE.match(answer):
        return choice[1] == _CHOICE_WITH_VALUE.match(answer)[1]
    gold_words, words = _words(gold), _words(answer)
    if r"\text" in gold + answer and gold_words and words:
        return gold_words == words
    if _VARIABLE.match(gold) and _VARIABLE.match(answer):
        return False
    gold_based, based = _based(gold), _based(answer)
    if gold_based and based:
        return gold_based == based
    if gold_based or based:
        # The question fixes the base, so an answer may leave it out.
        return (gold_based or [gold])[0].lstrip("0") == (based or [answer])[0].lstrip("0")
    gold, gold_unit = value_and_unit(_LEADING_TEXT.sub("", gold))
    answer, unit = value_and_unit(_LEADING_TEXT.sub("", answer))
    if gold_unit and unit and gold_unit != unit:
        return False
    if gold == answer:
        return True
    return _same_number(gold, answer, gold_unit == "%", unit == "%")


def _same_number(gold: str, answer: str, gold_percent: bool, percent: bool) -> bool:
    gold_value, gold_large = _rational(gold)
    value, large = _rational(answer)
    if gold_large or large:
        if gold_large and large:
            raise Undecided
        return False
    if gold_value is None or value is None:
        if (gold_value is not None and _has_variable(answer)) or (value is not None and _has_variable(gold)):
            return False  # a number is no expression in a variable
        raise Undecided
    if exact.same_rational(gold, answer, gold_value, value):
        return True
    if gold_percent != percent:
        # `62.5%` is also 0.625; without a sign 62.5 is only 62.5.
        scaled = (gold_value / 100, value) if gold_percent else (gold_value, value / 100)
        return scaled[0] == scaled[1]
    return False


def _rational(text: str) -> tuple[Fraction | None, bool]:
    try:
        return exact.rational(text), False
    except exact.TooLarge:
        return None, True


def _has_variable(text: str) -> bool:
    """Whether a letter or word stands for itself: then the text is no plain number."""
    return any((token.isalpha() and token not in "ei") or token.startswith(r"\text{") for token in tokens(text))


def _words(text: str) -> str:
    if not _ONLY_TEXT.match(text):
        return ""
    return re.sub(r"[^a-z]", "", _TEXT.sub(r"\1", text).lower())


def _based(text: str) -> list[str]:
    match = _BASED.match(text) or _BASE_TEXT.match(text)
    if match is None:
        return []
    base = _BASE_WORDS.get(match[2], match[2])
    return [match[1], base] if base.isdigit() else []
