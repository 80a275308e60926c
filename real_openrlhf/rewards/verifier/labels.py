r"""What an answer calls its value: `x = 3`, `AB = 4`, `|AB| = 1`, `V_{1}:V_{2} = 11:21`, `\sin A = \frac{3}{5}`."""

import re

from real_openrlhf.rewards.verifier.normalise import tokens

_WORD_FUNCTIONS = r"sin|cos|tan|cot|sec|csc|log|ln|frac|sqrt|cdot"
_NAME = re.compile(
    r"^(?:\\text\{[^{}]*\}|\\(?:overline|vec|hat|bar|mathbb|mathcal|overrightarrow)\{[^{}]*\}|"
    rf"\\(?!{_WORD_FUNCTIONS})[a-zA-Z]+(?![a-zA-Z])|[a-zA-Z\s']|_\{{[^{{}}]*\}}|\^\{{(?:\\prime|\*|-1)+\}})+"
    r"(?:\([a-zA-Z,\d]+\))?$"
)
_POINTS = r"\\?(?:triangle ?)?[A-Z](?:_\{\w+\})?(?:[A-Z](?:_\{\w+\})?)*"
_QUANTITY = re.compile(
    rf"^(?:{_POINTS}|\|{_POINTS}\||\|\\(?:vec|overrightarrow|overline)\{{[^{{}}]*\}}\||m\\angle ?{_POINTS}|"
    rf"\\(?:sin|cos|tan|cot) ?(?:\\angle ?)?(?:{_POINTS}|\\[a-z]+|\({_POINTS}\)))$"
)
_NUMBER = re.compile(r"^(?=.*\d)(?:[\d.,+\-/(){}!\s^%]|\\(?:frac|cdot|sqrt|pi|%|binom|text\{[^{}]*\}))+$")
_CONSTANTS = (r"\pi", r"\infty", "e", "i")
_PARAMETER = re.compile(r"^[a-w](?:_\{\w+\})?$")
_FRACTION = re.compile(r"^\\frac\{([^{}]*(?:\{[^{}]*\})?[^{}]*)\}\{([^{}]*(?:\{[^{}]*\})?[^{}]*)\}$")
VARIABLE = re.compile(r"^[a-zA-Z](?:_\{[^{}]*\})?$")
_FUNCTION = re.compile(r"^(\\?[a-zA-Z]+(?:_\{[^{}]*\})?(?:\^\{[^{}]*\})?)\(([a-zA-Z])\)$")
_INDEX = re.compile(r"^([a-zA-Z])_\{(\d+)\}$")
_DECORATION = re.compile(r"\\angle ?|\\triangle ?|\\overline(?=\{)|^m(?=\\angle)|[|\s{}]")


def named(text: str) -> tuple[str, str]:
    """`x = 2 + 3 = 5` is a value, 5, with a name, x; `5 = x` too. Without `=` the name is empty."""
    sides = [side.strip() for side in _top_level_equals(text)]
    if len(sides) == 1 or not all(sides):
        return "", text
    if len(sides) == 2 and VARIABLE.match(sides[1]) and not _NAME.match(sides[0]):
        return sides[1], sides[0]
    if all(map(_NUMBER.match, sides)):
        return "", sides[-1]  # 0.56 = 56\%: two spellings of one value
    return sides[0], sides[-1]


def is_equation(name: str, value: str) -> bool:
    """Whether a left side such as `2x + y` is no name, so that the whole text is an equation."""
    if _NAME.match(name) and not _is_product(name):
        return False
    return has_letter(value) or not _is_quantity(name)


def is_label(text: str) -> bool:
    """Whether a text by itself can only be a name, as what is left of `\\approx` in `AB \\approx 1.4`."""
    return text not in _CONSTANTS and (_NAME.match(text) is not None or _is_quantity(text))


def same_name(gold: str, answer: str, value: str) -> str | None:
    """The answer's value in the gold's terms (`f(t) = t` for `f(x) = x`); None where it names something else."""
    if canonical(gold) == canonical(answer):
        return value
    if r"\text" in gold or r"\text" in answer:
        return value if _words_agree(gold, answer) else None
    gold_function, function = _FUNCTION.match(gold), _FUNCTION.match(answer)
    if gold_function and function:
        if gold_function[1] != function[1]:
            return None
        variable = gold_function[2]
        if re.search(rf"(?<![\\a-zA-Z]){variable}(?![a-zA-Z])", value):
            return None
        return re.sub(rf"(?<![\\a-zA-Z]){function[2]}(?![a-zA-Z])", variable, value)
    if (gold_function and VARIABLE.match(answer)) or (function and VARIABLE.match(gold)):
        return value
    return value if base(gold) == answer or base(answer) == gold else None  # x for x_{1}


def _words_agree(gold: str, answer: str) -> bool:
    """`Area` and `area of the triangle` may be one, `max` and `min` not; a word and a symbol may."""
    words = [re.sub(r"\\text|[^a-z]", "", name.lower()) if r"\text" in name else "" for name in (gold, answer)]
    return words[0] in words[1] or words[1] in words[0]


def canonical(name: str) -> str:
    """`|AB|`, `AB` and `\\overline{AB}` are one length; `\\angle A` and `A` one angle."""
    return _DECORATION.sub("", name)


def base(name: str) -> str:
    """The letter of an indexed variable: `x` of `x_{1}`."""
    indexed = _INDEX.match(name)
    return indexed[1] if indexed else name


def are_roots(names: list[str]) -> bool:
    """`x_{1}, x_{2}`: values of one unknown, whose order says nothing."""
    matches = [match for name in names if (match := _INDEX.match(name))]
    return (
        len(matches) == len(names)
        and {int(match[2]) for match in matches} == set(range(1, len(names) + 1))
        and len({match[1] for match in matches}) == 1
    )


def has_letter(text: str) -> bool:
    """Whether a letter or word stands for itself: then the text is no plain number."""
    return any((token.isalpha() and token not in "ei") or token.startswith(r"\text{") for token in tokens(text))


def _is_product(name: str) -> bool:
    """`SRAC` and `MR` are names or products of letters; as an equation `MR = SRMC` both sides matter."""
    return len(name) > 1 and name.isalpha()


def _is_quantity(name: str) -> bool:
    """Something that a problem may ask for, or a quotient of such; `x/y` is none, because `y = 2x` is a line."""
    fraction = _FRACTION.match(name)
    parts = fraction.groups() if fraction else re.split("[:/]", name)
    if len(parts) == 1:
        return _QUANTITY.match(name) is not None
    if ":" in name:
        return all(map(_NAME.match, parts))
    return all(_QUANTITY.match(part) or _PARAMETER.match(part) for part in parts)


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
