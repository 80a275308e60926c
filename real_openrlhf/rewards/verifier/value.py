r"""One value: its name (`x = 3`), its unit (`12\text{ cm}`), and its comparison by text and arithmetic."""

import re
from fractions import Fraction

from real_openrlhf.rewards.verifier import number
from real_openrlhf.rewards.verifier.text import split, tokens


class Undecided(Exception):
    """Neither equal nor different by text and arithmetic alone: algebra has to decide about these two texts."""


_NAME = re.compile(
    r"^(?:\\text\{[^{}]*\}|\\(?:overline|vec|hat|mathcal)\{[^{}]*\}|"
    r"\\(?!(?:sin|cos|tan|cot|sec|csc|log|ln|frac|sqrt|cdot)(?![a-zA-Z]))[a-zA-Z]+(?![a-zA-Z])|"
    r"[a-zA-Z\s']|_\{[^{}]*\}|\^\{(?:\\prime|\*|-1)+\})+(?:\([a-zA-Z,\d]+\))?$"
)
_POINTS = r"\\?(?:triangle ?)?[A-Z](?:_\{\w+\})?(?:[A-Z](?:_\{\w+\})?)*"
_QUANTITY = re.compile(
    rf"^(?:{_POINTS}|\|{_POINTS}\||m?\\angle ?{_POINTS}|\\(?:sin|cos|tan|cot) ?(?:\\angle ?)?(?:{_POINTS}|\\[a-z]+))$"
)
_NUMBER = re.compile(r"^(?=.*\d)(?:[\d.,+\-/(){}!\s^%]|\\(?:frac|cdot|sqrt|pi|%|binom|text\{[^{}]*\}))+$")
_VARIABLE = re.compile(r"^[a-zA-Z](?:_\{[^{}]*\})?$")
_INDEX_OR_ARGUMENT = re.compile(r"(?:_\{?\w+\}?|\([a-z]\))$")
_DECORATION = re.compile(r"\\angle ?|\\triangle ?|\\overline(?=\{)|^m(?=\\angle)|[|\s{}]")

_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_ONLY_TEXT = re.compile(r"^(?!-)(?:\\text\{[^{}]*\}|[a-zA-Z'\s.-])+$")
_CHOICE = re.compile(r"^(?:\\text\{)?\(?([A-Z])\)?\.?\}?$")
_BASED = re.compile(r"^\(?(-?(?=[A-F]*\d)[0-9A-F]+)\)?_\{\(?(?:\\text\{)?\(?(\d+)\)?\}?\)?\}$")
_CAPITALS = re.compile(r"^(?:\\angle ?)?[A-Z]{3,}$")  # a word or points: its letters are no factors
_SYNONYMS = {
    "nosolution": "emptyset", "nosolutions": "emptyset", "norealsolution": "emptyset", "norealsolutions": "emptyset",
    "theemptyset": "emptyset", "therearenosolutions": "emptyset", "thereisnosolution": "emptyset",
    "therearenorealsolutions": "emptyset", "infinitelymany": "infty", "infinity": "infty", "infinite": "infty",
}  # fmt: skip
_SYMBOLS = {r"\emptyset": "emptyset", r"\infty": "infty"}

# Other units are ignored: the question says what is counted. None is converted: 12 cm is not 0.12 m.
_UNITS = {
    spelling: words.split()[0]
    for words in (
        "m meter metre", "cm centimeter centimetre", "mm millimeter", "km kilometer kilometre", "in inch inche",
        "ft foot feet", "yd yard", "mi mile", "s sec second", "min minute", "h hr hour", "day", "week", "month",
        "yr year", "g gram", "kg kilogram", "lb pound", "l liter litre", "ml milliliter", "deg degree", "rad radian",
        "% percent", "dollar usd", "cent", "hz hertz",
    )
    for spelling in words.split()
}  # fmt: skip
_UNIT = re.compile(
    r"^(?P<value>.*?[\d)}a-zA-Z|!])\s*(?:\\cdot)?\s*"
    r"(?P<unit>(?:\\text\{[^{}]*\}(?:\^\{-?\d\})?(?:[\s/]|\\cdot(?![a-zA-Z]))*)+|\\%|%|"
    r"\^\{\\circ\}(?:\s*(?:\\text\{[^{}]*\}|[CFK]))?)$",
    re.DOTALL,
)
_BARE_UNIT = re.compile(
    r"^(?P<value>[\d.,\s/+-]*[\d](?:\^\{\d+\})?|.*\})\s*"
    r"(?P<unit>(?:(?:square|cubic|sq\.?) ?)?(?:cm|mm|km|inch(?:es)?|feet|foot|ft|yards?|miles?|mph|degrees?|percent|"
    r"liters?|litres?|pounds?|ounces?|people|"
    r"dollars?|cents?|meters?|hours?|minutes?|seconds?|days?|weeks?|months?|years?|grams?|kg|units?|Hz)"
    r"(?: per (?:second|minute|hour|day|week|year))?(?:\^\{\d\})?)$",
    re.DOTALL,
)
ANGLE_FUNCTION = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-zA-Z])")
# Words that change a value: what has one of them is no unit.
_CHANGES = re.compile(
    r"\b(?:and|or|if|when|unless|not|half|third|quarter|less|more|least|most|than|fewer|up|over|under|about|plus|minus"
    r"|times|squared|cubed|dozen|hundred|thousand|million|billion|trillion)\b"
)
_SI = re.compile(r"^(?:[numkMGTpμ]?(?:Hz|J|W|V|N|Pa|eV|mol|F|T|Ω)|[num]?[AK]|[nμ][mslg])$")  # case counts: mW, MW
_AT = re.compile(r"\\text\{ *(?:at|when|where|for) *\} *[a-zA-Z]=-?[\d./]+$")  # a condition beside a value
_UNIT_WORD = re.compile(r"(?:(square|sq|cubic)\s+)?([a-z%]+)(?:\^\{?(-?\d)\}?)?")
_POWERS = {"square": "2", "sq": "2", "cubic": "3"}


def named(text: str) -> tuple[str, str]:
    """`x = 2 + 3 = 5` is a value, 5, with a name, x; `5 = x` too. Without `=` the name is empty."""
    sides = split(text, ("=",), thousands=False) if "=" in text else [text]
    if len(sides) == 1:
        return "", text
    if len(sides) == 2 and _VARIABLE.match(sides[1]) and not _NAME.match(sides[0]):
        return sides[1], sides[0]
    if all(map(_NUMBER.match, sides)):
        return "", sides[-1]  # 0.56 = 56\%: two spellings of one value
    return sides[0], sides[-1]


def is_equation(name: str, value: str) -> bool:
    """Whether a left side such as `2x + y` is no name, so that the whole text is an equation."""
    if (_NAME.match(name) and not (len(name) > 1 and name.isalpha())) or ":" in name:
        return False
    return has_letter(value) or not _QUANTITY.match(name)  # `AB = 4` is a name, `MR = SRMC` an equation


def is_label(text: str) -> bool:
    r"""Whether a text by itself can only be a name, as what is left of `\approx` in `AB \approx 1.4`."""
    return text not in (r"\pi", "e", "i") and bool(_NAME.match(text) or _QUANTITY.match(text))


def same_name(gold: str, answer: str) -> bool:
    """`|AB|` is `AB`, `f(x)` is `f`, `x_{1}` is `x`; `Area` may be `area of the triangle`, and any one symbol."""
    if _DECORATION.sub("", gold) == _DECORATION.sub("", answer):
        return True
    if r"\text" in gold or r"\text" in answer:
        one, other = (re.sub(r"\\text|[^a-z]", "", name.lower()) * (r"\text" in name) for name in (gold, answer))
        return one in other or other in one
    return base(gold) == answer or base(answer) == gold


def base(name: str) -> str:
    """The letter of an indexed variable or a function: `x` of `x_{1}`, `f` of `f(x)`."""
    return _INDEX_OR_ARGUMENT.sub("", name)


def has_letter(text: str) -> bool:
    """Whether a letter or word stands for itself: then the text is no plain number."""
    return any((token.isalpha() and token not in "ei") or token.startswith(r"\text{") for token in tokens(text))


def value_and_unit(text: str) -> tuple[str, str]:
    """The value, and the unit where it is a known one; the text itself where there is none."""
    match = _UNIT.match(text) or _BARE_UNIT.match(text)
    if match is None or ("\\circ" in match["unit"] and ANGLE_FUNCTION.search(text)) or _CHANGES.search(match["unit"]):
        return text, ""
    return match["value"].strip(), _known(match["unit"])


def _known(unit: str) -> str:
    """One spelling for one unit, `m/s` or `cm2`; none for words that are no units."""
    if r"\circ" in unit:
        return "deg" + (unit.rstrip("}")[-1:] if unit.rstrip("}")[-1:] in "CFK" else "")
    if _SI.match(symbol := _TEXT.sub(r"\1", unit).strip()):
        return symbol
    words = _TEXT.sub(r"\1", unit.replace("\\%", "%").replace(r"\cdot", " ")).lower()
    above, *below = re.split(r"/|\bper\b", words.replace("mph", "mi/h").replace(".", ""))
    parts = []
    for side in (above, *below):
        found = [
            (_UNITS.get(word) or _UNITS.get(word.removesuffix("s"), ""), power or _POWERS.get(named_power, ""))
            for named_power, word, power in _UNIT_WORD.findall(side)
        ]
        if not all(word for word, _ in found):
            return ""
        parts.append(" ".join(word + power for word, power in found))
    return "/".join(parts)


def same(gold: str, answer: str, digits: int = number.ROUNDED_DIGITS) -> bool:
    """Whether two normalised values are equal; raises Undecided where text and arithmetic cannot tell.

    `digits` is how many significant digits a decimal needs to stand for a value that has no finite decimal.
    """
    if gold == answer:
        return True
    if bool(_AT.search(gold)) != bool(_AT.search(answer)):
        gold, answer = _AT.sub("", gold).strip(), _AT.sub("", answer).strip()  # its value is not the condition's
    (gold_name, gold_value), (name, value) = named(gold), named(answer)
    asks_equation = bool(gold_name) and is_equation(gold_name, gold_value)
    if gold_name and name:
        agree = same_name(gold_name, name)
        if asks_equation or is_equation(name, value):
            raise Undecided(gold, answer)  # equations, not names given to values
        if not agree and has_letter(gold_value) and has_letter(value):
            raise Undecided(gold, answer)  # one may be the other, solved for another variable
        return agree and _same_value(gold_value, value, digits)
    return not asks_equation and _same_value(gold_value, value, digits)


def _same_value(gold: str, answer: str, digits: int) -> bool:
    if gold == answer or _plain(gold) == _plain(answer):
        return True
    gold_choice, choice = _CHOICE.match(gold), _CHOICE.match(answer)
    if gold_choice and choice:
        return gold_choice[1] == choice[1]
    gold_words, words = _words(gold), _words(answer)
    if gold_words and words and (r"\text" in gold + answer or gold_words in _SYMBOLS.values()):
        return gold_words == words
    if _VARIABLE.match(gold) and _VARIABLE.match(answer):
        return False
    if _CAPITALS.match(gold) and _CAPITALS.match(answer):
        return gold == answer or (
            r"\angle" in gold + answer and _points(gold) in (_points(answer), _points(answer)[::-1])
        )
    gold_based, based = _BASED.match(gold), _BASED.match(answer)
    if gold_based and based:
        return gold_based.groups() == based.groups()
    if gold_based or based:  # the question fixes the base, so an answer may leave it out
        return (gold_based[1] if gold_based else gold).lstrip("0") == (based[1] if based else answer).lstrip("0")
    (gold, gold_unit), (answer, unit) = value_and_unit(gold), value_and_unit(answer)
    if gold_unit and unit and gold_unit != unit and {gold_unit, unit} not in ({"deg", "degC"}, {"deg", "degF"}):
        return False
    return gold == answer or _same_number(gold, answer, (gold_unit == "%", unit == "%"), digits)


def _same_number(gold: str, answer: str, percents: tuple[bool, bool], digits: int) -> bool:
    if ":" in gold + answer:
        return False  # of a time its text decides
    try:
        (gold_value, gold_large), (value, large) = _rational(gold), _rational(answer)
    except number.NoValue:
        return False
    if gold_large or large:
        if gold_large and large:
            raise Undecided(gold, answer)
        return False
    if gold_value is None or value is None:
        if (gold_value is not None and has_letter(answer)) or (value is not None and has_letter(gold)):
            return False  # a number is no expression in a variable
        raise Undecided(gold, answer)
    if number.same_rational(gold, answer, gold_value, value, digits):
        return True
    if percents[0] != percents[1]:  # `62.5%` is also 0.625; without a sign 62.5 is only 62.5
        return gold_value / 100 == value if percents[0] else gold_value == value / 100
    return False


def _points(text: str) -> str:
    return text.removeprefix(r"\angle").strip()


def _rational(text: str) -> tuple[Fraction | None, bool]:
    try:
        return number.rational(text), False
    except number.TooLarge:
        return None, True


def _plain(text: str) -> str:
    r"""Without the marks of upright text: `10\text{m}^{2}` may be written `10m^{2}`."""
    return re.sub(r"(?<!\d)\s|\s(?!\d)", "", _TEXT.sub(r"\1", text))  # 5 1/3 is not 51/3


def _words(text: str) -> str:
    """Letters and digits of a text in words; numbers in it count, so that October 30 is not October 31."""
    if text in _SYMBOLS:
        return _SYMBOLS[text]
    if not _ONLY_TEXT.match(text):
        return ""
    words = re.sub(r"[^a-z0-9]", "", _TEXT.sub(r"\1", text).lower())
    return _SYNONYMS.get(words, words)
