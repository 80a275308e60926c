"""The leaves of an answer: expressions with units, words, times, numbers in a base."""

import contextlib
import re
from fractions import Fraction
from itertools import pairwise

from same_answer.reading.cutting import is_words, texts_of, trimmed
from same_answer.reading.grammar import expression
from same_answer.reading.tex import Tokens, tokens, untokenize
from same_answer.reading.tree import (
    HIGH,
    LOW,
    NOTHING,
    REALS,
    Answer,
    Call,
    Expr,
    NoExpression,
    Number,
    Ratio,
    Symbol,
    Text,
    as_text,
    letters_of,
    quantity,
)
from same_answer.reading.units import BARE, SCALES, Unit, known, unit
from same_answer.reading.words import NUMERALS

SYNONYMS = {
    "nosolution": "emptyset", "norealsolution": "emptyset", "emptyset": "emptyset", "empty": "emptyset",
    "nointegersolution": "emptyset", "infinitelymany": "infinity", "infinity": "infinity", "infinite": "infinity",
    "infinitelymanysolution": "infinity", "ye": "yes", "true": "yes", "false": "no", "dne": "doesnotexist",
    "undefined": "doesnotexist", "none": "emptyset", "impossible": "impossible",
}  # fmt: skip
# Phrases around a word that say nothing, without their spaces.
_OPENING = (
    "on(?=[a-z]+day)", "(?:the)?(?:function|graph|curve|answer|sequence|series|statement)is", "thereare", "thereis",
    "thereexists", "theanswer(?:is)?", "answer(?:is)?", "theequationhas", "ithas", "has", "the", "itis", "is",
)  # fmt: skip
_CLOSING = (
    "(?:function|number|value)s?", "(?<=neither)(?:evennorodd|oddnoreven)", "(?<=solution)s?exists?",
    "(?<=solutions)exists?", "s",
)  # fmt: skip
FILLING = re.compile(f"^(?:{'|'.join(_OPENING)})+|(?:{'|'.join(_CLOSING)})$")
REALS_SAID = re.compile(r"^(?:all)?realnumbers?$|^allreals?$|^reals$|^(?:the)?setof(?:all)?realnumbers$")
_DATE = re.compile(r"[12]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
_ANGLE = re.compile(r"(\d+)\^\{?\\circ\}?(\d+(?:\.\d+)?)'(?:(\d+(?:\.\d+)?)'')?")
_BASES = NUMERALS | {"binary": 2, "octal": 8, "hexadecimal": 16}


def read_words(parts: Tokens) -> Answer | None:
    texts = texts_of(parts)
    if texts in ([r"\emptyset"], [r"\{", r"\}"], ["{", "}"]):
        return NOTHING
    if texts in ([r"\mathbb{R}"], [r"\R"]):
        return REALS
    if len(texts) == 1 and texts[0].startswith(r"\mathbb"):
        return Answer(Text(texts[0]))
    if texts[:1] == ["-"] and texts[1:2] and texts[1].lower() == "infinity":
        return LOW
    if not is_words(parts):
        return None
    product = len(parts) == 1 and parts[0].kind == "letters" and len(texts[0]) <= 3 and not texts[0].isupper()
    if product and texts[0].lower() not in ("yes", "no", "odd"):
        return None
    if len(texts) > 1 and texts[0].lower() in ("a", "an", "the"):
        parts, texts = parts[1:], texts[1:]
    words = re.sub(r"[^a-z0-9]", "", untokenize(parts).lower())
    if REALS_SAID.match(words):
        return REALS
    words = FILLING.sub("", words) or words
    words = words.removesuffix("s") if len(words) > 3 else words
    if SYNONYMS.get(words) == "infinity":
        return HIGH
    if len(parts) == 1 and len(texts[0]) == 1:
        return None
    words = (
        texts[0].lower() if texts[0].isupper() and len(parts) == 1 and words not in ("ye", "no", *SYNONYMS) else words
    )
    return Answer(Text(SYNONYMS.get(words, words)))


def read_time(parts: Tokens) -> Answer | None:
    """A time, or a date as `2024-03-15`, which is no subtraction."""
    text = untokenize(parts)
    if _DATE.fullmatch(text) and not any(token.spaced for token in parts[1:]):
        return Answer(Text(text))
    match = re.fullmatch(r"(\d{1,2}(?::\d\d){1,2}) ?(?:([aApP])\.? ?[mM]?\.?)?", text.replace("\\text", ""))
    if not match or not (match[2] is None or "m" in text.lower()):
        return None
    time = tuple(map(int, match[1].split(":")))
    if time[0] > 24 or max(time[1:]) > 59:
        return None  # 36:94 is a ratio
    half = (match[2] or "").lower()
    return Answer(Ratio(tuple(Number(Fraction(one)) for one in time), time, half))


def name_of(parts: Tokens) -> str:
    """The letter or function that an inequality bounds; an empty text for other tokens."""
    try:
        expr = expression(parts)
    except NoExpression:
        return ""
    of_one = isinstance(expr, Call) and expr.name.endswith("()") and [type(arg) for arg in expr.args] == [Symbol]
    return expr.name if of_one or (isinstance(expr, Symbol) and letters_of(expr)) else ""  # type: ignore[union-attr]


def expr_of(parts: Tokens) -> Expr | None:
    return quantity(read_quantity(trimmed(parts)))


def is_numeric(parts: Tokens) -> bool:
    expr = expr_of(parts)
    return expr is not None and not letters_of(expr)


def read_based(parts: Tokens) -> Answer | None:
    text = re.sub(r"[\s(){}]", "", untokenize(parts))
    match = re.fullmatch(r"(-?(?=[A-F]*\d)[0-9A-F]+(?:\.\d+)?)(?:_(?:base)?|(?:in)?base)(\d{1,2}|[a-z]+)", text)
    if not match or (match[2].isalpha() and match[2] not in _BASES):
        return None
    digits, base = match[1], int(match[2]) if match[2].isdigit() else _BASES[match[2]]
    if not digits.removeprefix("-").replace(".", "").isdigit():
        return Answer(Text(digits.lstrip("0")), base=base)
    return Answer(expression(tokens(digits)), base=base)


def read_quantity(parts: Tokens) -> Answer:
    """An expression with a unit behind it: the longest tail that is a unit."""
    parts = trimmed(parts)
    with contextlib.suppress(NoExpression):
        celsius = any(one.text in (r"\circ", "}") and after.text in ("C", "F") for one, after in pairwise(parts))
        ohm = len(parts) > 1 and parts[-1].text == r"\Omega" and parts[-2].kind == "number"
        bare = any(token.kind == "letters" and may_begin_unit(parts, at) for at, token in enumerate(parts) if at)
        if not (celsius or ohm or bare or any(one.kind == "word" and len(one.text) == 1 for one in parts[1:])):
            return percented(expression(parts))
    parts = scaled(parts)
    for at in range(1, len(parts)):
        if not may_begin_unit(parts, at) or (measure := unit(parts[at:])) is None:
            continue
        head = trimmed(parts[:at])
        if head and head[-1].text in (r"\cdot", "-"):
            head = head[:-1]
        with contextlib.suppress(NoExpression):
            return Answer(expression(head), unit=measure)
    try:
        return percented(expression(parts))
    except NoExpression:
        return as_text(parts)


def read_compound(parts: Tokens) -> Answer | None:
    """`2 hours 30 minutes` and `30^\\circ 15'` as one quantity: numbers with units of one kind, each smaller."""
    if not parts or parts[0].kind != "number" or len(parts) < 4:
        return None
    if angle := _ANGLE.fullmatch(untokenize(parts)):
        degrees, minutes, seconds = (Fraction(part or 0) for part in angle.groups())
        return Answer(Number(degrees + minutes / 60 + seconds / 3600), unit=Unit(dimensions=(("deg", 1),)))
    starts = [at for at, token in enumerate(parts) if token.kind == "number"]
    if len(starts) < 2 or any(at - before < 2 for before, at in pairwise([*starts, len(parts)])):
        return None
    pieces = [parts[at + 1 : end] for at, end in pairwise([*starts, len(parts)])]
    joined = any(piece[-1].text in ("and", ",") for piece in pieces)
    first, *others = (unit(piece[:-1] if piece[-1].text in ("and", ",") else piece) for piece in pieces)
    if joined and first and first.dimensions != (("s", 1),):  # 5 m and 3 cm may be two answers
        return None
    if not first or first.words or not first.dimensions or first.dimensions[0][0] in ("%", "deg"):
        return None
    total, last = Fraction(parts[0].text), first
    for at, other in zip(starts[1:], others, strict=True):
        if not other or other.words or other.dimensions != first.dimensions or other.factor >= last.factor:
            return None
        total, last = total + Fraction(parts[at].text) * other.factor / first.factor, other
    return Answer(Number(total), unit=first)


def percented(expr: Expr) -> Answer:
    """An expression with its sign of percent or degrees as a unit."""
    size = expr.args[0] if isinstance(expr, Call) and expr.name == "-" else expr
    name = {"percent": "%", "degrees": "deg"}.get(size.name) if isinstance(size, Call) else None
    if not name or not isinstance(size, Call):
        return Answer(expr)
    return Answer(size.args[0] if size is expr else Call("-", size.args), unit=Unit(dimensions=((name, 1),)))


def may_begin_unit(parts: Tokens, at: int) -> bool:
    token, before = parts[at], parts[at - 1]
    if token.kind == "word" or token.text == "%":
        return True
    if token.kind == "letters" and (before.kind == "number" or before.text == "}"):
        return (
            (token.text in BARE and before.kind == "number")
            or (token.spaced and token.text in "NKJWV" and at == len(parts) - 1)
            or token.text in ("per", "sq")
            or (token.spaced and len(token.text) > 1 and (known(token.text) is not None or len(token.text) > 3))
        )
    if token.text == "^":
        return r"\circ" in texts_of(parts[at + 1 : at + 3])
    if token.text in (r"\frac", r"\mu", r"\Omega", "(", "["):
        return any(one.kind == "word" for one in parts[at + 1 :]) or (token.text == r"\Omega" and at == len(parts) - 1)
    return False


def scaled(parts: Tokens) -> Tokens:
    """`6 \\text{ million people}` as 6 times ten to the sixth, people."""
    for at, token in enumerate(parts):
        if at and token.text.lower() in SCALES and (token.kind == "word" or token.spaced):
            power = tokens(rf"\cdot10^{{{SCALES[token.text.lower()]}}}")  # before the words, which are of money
            return (*sorted((*parts[:at], *power), key=lambda one: one.kind == "word"), *parts[at + 1 :])
    return parts
