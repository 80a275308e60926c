"""Two leaves of an answer compared by text and exact arithmetic: decides most pairs, and says when it cannot."""

import re
from fractions import Fraction

from real_openrlhf.rewards.verifier import exact, labels
from real_openrlhf.rewards.verifier.units import PERCENT, in_one_unit, value_and_unit


class Undecided(Exception):
    """Neither equal nor different by text and arithmetic alone: algebra has to decide."""


_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_SEGMENT = re.compile(r"\\overline\{([A-Z]{2})\}")
_ONLY_TEXT = re.compile(r"^(?!-)(?:\\text\{[^{}]*\}|[a-zA-Z'\s.-])+$")
_LEADING_TEXT = re.compile(r"^(?:\\text\{[^{}]*\}[\s:=]*)+(?=[^\s:=^_/])")
_CHOICE = re.compile(r"^(?:\\text\{)?\(?([A-Z])\)?\.?\}?$")
_CHOICE_WITH_VALUE = re.compile(r"^(?:\\text\{)?(?:\(([A-Z])\)|([A-Z])[).:])\}?(?=.)")
_BASED = re.compile(r"^\(?((?=[A-F]*\d)[0-9A-F]+)\)?_\{(?:\\text\{)?(\d+|[a-z]+)\}?\}$")
_BASE_TEXT = re.compile(r"^((?=[A-F]*\d)[0-9A-F]+)\\text\{\(?(?:in )?base ([a-z0-9]+)\)?\}$")
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
               "nine": "9", "twelve": "12", "sixteen": "16"}  # fmt: skip
# Words that say the same as a symbol or as other words.
_SYNONYMS = {
    "nosolution": "emptyset", "nosolutions": "emptyset", "norealsolution": "emptyset", "norealsolutions": "emptyset",
    "norealroots": "emptyset", "nosuchnumber": "emptyset", "empty": "emptyset", "theemptyset": "emptyset",
    "infinitelymany": "infty", "infinity": "infty", "infinite": "infty", "dne": "doesnotexist",
}  # fmt: skip
_BOUND = re.compile(r"\\(?:sum|prod|int|lim)(?![a-zA-Z])")
_SYMBOLS = {r"\emptyset": "emptyset", r"\infty": "infty"}


def same(gold: str, answer: str, digits: int = exact.ROUNDED_DIGITS) -> bool:
    """Whether two normalised leaves are equal; raises Undecided where text and arithmetic cannot tell.

    `digits` is how many significant digits a decimal needs to stand for a value that has no finite decimal.
    """
    if gold == answer:
        return True
    gold_name, gold_value = labels.named(gold)
    name, value = labels.named(answer)
    asks_equation = bool(gold_name) and labels.is_equation(gold_name, gold_value)
    if gold_name and name:
        renamed = labels.same_name(gold_name, name, value)
        if asks_equation or labels.is_equation(name, value):
            raise Undecided  # equations, not names given to values
        if renamed is None and labels.has_letter(gold_value) and labels.has_letter(value):
            raise Undecided  # one may be the other, solved for another variable
        return renamed is not None and _same_value(gold_value, renamed, digits)
    if asks_equation:
        return False  # an equation is asked for, a value is given
    return _same_value(gold_value, value, digits)


def _same_value(gold: str, answer: str, digits: int) -> bool:
    if gold == answer or _plain(gold) == _plain(answer):
        return True
    choice = _same_choice(gold, answer)
    if choice is not None:
        return choice
    gold_words, words = _words(gold), _words(answer)
    if gold_words and words and (r"\text" in gold + answer or gold_words in _SYMBOLS.values()):
        return gold_words == words
    if labels.VARIABLE.match(gold) and labels.VARIABLE.match(answer):
        return False
    gold_based, based = _based(gold), _based(answer)
    if gold_based and based:
        return gold_based == based
    if gold_based or based:
        # The question fixes the base, so an answer may leave it out.
        return (gold_based or [gold])[0].lstrip("0") == (based or [answer])[0].lstrip("0")
    gold, answer = _LEADING_TEXT.sub("", gold), _LEADING_TEXT.sub("", answer)
    percents = value_and_unit(gold)[1] == PERCENT, value_and_unit(answer)[1] == PERCENT
    values = in_one_unit(gold, answer)
    if values is None:
        return False
    return values[0] == values[1] or _same_number(*values, percents, digits)


def _same_choice(gold: str, answer: str) -> bool | None:
    r"""`(C)` and `C. 42` are choice C; `\text{(D)}12` is also 12. None where neither is a choice with its value."""
    gold_choice, choice = _CHOICE.match(gold), _CHOICE.match(answer)
    gold_valued, valued = _CHOICE_WITH_VALUE.match(gold), _CHOICE_WITH_VALUE.match(answer)
    if gold_choice and valued:
        return gold_choice[1] in valued.groups()
    if choice and gold_valued:
        return choice[1] in gold_valued.groups()
    for one, other, match in ((gold, answer, valued), (answer, gold, gold_valued)):
        if match and match[1] and r"\text" in match[0] and not _CHOICE_WITH_VALUE.match(one):
            return same(one, other[match.end() :].strip())
    return None


def _same_number(gold: str, answer: str, percents: tuple[bool, bool], digits: int) -> bool:
    if _BOUND.search(gold + answer):
        raise Undecided  # the letter of a sum is no variable
    try:
        (gold_value, gold_large), (value, large) = _rational(gold), _rational(answer)
    except exact.NoValue:
        return False
    if gold_large or large:
        if gold_large and large:
            raise Undecided
        return False
    if gold_value is None or value is None:
        if (gold_value is not None and labels.has_letter(answer)) or (value is not None and labels.has_letter(gold)):
            return False  # a number is no expression in a variable
        raise Undecided
    if exact.same_rational(gold, answer, gold_value, value, digits):
        return True
    if percents[0] != percents[1]:
        # `62.5%` is also 0.625; without a sign 62.5 is only 62.5.
        scaled = (gold_value / 100, value) if percents[0] else (gold_value, value / 100)
        return scaled[0] == scaled[1]
    return False


def _rational(text: str) -> tuple[Fraction | None, bool]:
    try:
        return exact.rational(text), False
    except exact.TooLarge:
        return None, True


def _plain(text: str) -> str:
    r"""Without the marks of upright text and of segments: `10\text{m}^{2}` may be written `10m^{2}`."""
    return re.sub(r"\s", "", _TEXT.sub(r"\1", _SEGMENT.sub(r"\1", text)))


def _words(text: str) -> str:
    """Letters and digits of a text in words; numbers in it count, so that October 30 is not October 31."""
    if text in _SYMBOLS:
        return _SYMBOLS[text]
    if not _ONLY_TEXT.match(text):
        return ""
    words = re.sub(r"[^a-z0-9]", "", _TEXT.sub(r"\1", text).lower())
    return _SYNONYMS.get(words, words)


def _based(text: str) -> list[str]:
    match = _BASED.match(text) or _BASE_TEXT.match(text)
    if match is None:
        return []
    base = _BASE_WORDS.get(match[2], match[2])
    return [match[1], base] if base.isdigit() else []
