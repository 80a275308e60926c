"""An answer as a tree: numbers with units, names, lists, tuples, intervals, matrices, relations, words, times, choices.

Everything about spelling ends here: `compare` never looks at text again.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from real_openrlhf.rewards.verifier.arithmetic import NotRational, NoValue, TooLarge, exact
from real_openrlhf.rewards.verifier.expression import (
    Call,
    Expr,
    Number,
    Symbol,
    Unreadable,
    closing,
    expression,
    letters_of,
)
from real_openrlhf.rewards.verifier.tex import Token, Tokens, clean, depth_change, plain, tokens
from real_openrlhf.rewards.verifier.units import BARE, SCALES, Unit, known, unit


@dataclass(frozen=True)
class Quantity:
    """An expression, and its unit where it has one."""

    value: Expr
    unit: Unit | None = None


@dataclass(frozen=True)
class Text:
    """Words, or what cannot be read: equal to the same text only."""

    text: str
    readable: bool = True  # false: this looks like mathematics, and another spelling of it may be right


@dataclass(frozen=True)
class Named:
    """`x = 3`, `\\text{Area} = 5`, `A(7,1)`: the name may be left out."""

    name: Tokens
    value: "Answer"


@dataclass(frozen=True)
class Row:
    """A tuple, point or interval: order and brackets count. A matrix has its shape for brackets."""

    brackets: str
    items: tuple["Answer", ...]


@dataclass(frozen=True)
class Group:
    """A set, list of solutions or union: the order does not count."""

    items: tuple["Answer", ...]


@dataclass(frozen=True)
class Relation:
    """`sign` between two sides that are no name and value: = \\le < \\ne \\in and others."""

    sign: str
    sides: tuple["Answer", "Answer"]


@dataclass(frozen=True)
class Bounded:
    """An inequality of one letter: the interval it says, with the letter."""

    name: str
    interval: "Row | Group"


@dataclass(frozen=True)
class Ratio:
    """`1:2:3`, equal up to a factor; `9:45 a.m.` where it can be a time."""

    parts: tuple[Expr, ...]
    time: tuple[int, ...] = ()
    half: str = ""


@dataclass(frozen=True)
class Choice:
    letter: str
    value: "Answer | None" = None


@dataclass(frozen=True)
class Based:
    """`2301_4`: digits in a base, which the question fixes."""

    digits: str
    base: int


@dataclass(frozen=True)
class Either:
    """One value in several spellings, such as `\\sqrt{2} \\approx 1.41`: exact first."""

    forms: tuple["Answer", ...]


@dataclass(frozen=True)
class Conditioned:
    """`6 \\text{ at } x = 1`, `x+5, x \\ne 2`: the condition may be left out, not changed."""

    value: "Answer"
    condition: Tokens


Answer = Quantity | Text | Named | Row | Group | Relation | Bounded | Ratio | Choice | Based | Either | Conditioned

INFINITY = Symbol("infinity")
_EMPTY, _REALS = Text("emptyset"), Row("()", (Quantity(Call("-", (INFINITY,))), Quantity(INFINITY)))
_SYNONYMS = {
    "nosolution": "emptyset", "norealsolution": "emptyset", "emptyset": "emptyset", "empty": "emptyset",
    "nointegersolution": "emptyset", "infinitelymany": "infinity", "infinity": "infinity", "infinite": "infinity",
    "infinitelymanysolution": "infinity", "true": "yes", "false": "no", "dne": "doesnotexist",
    "undefined": "doesnotexist", "none": "emptyset", "impossible": "impossible",
}  # fmt: skip
_FILLING = re.compile(
    r"^(?:thereare|thereis|thereexists|theanswer(?:is)?|answer(?:is)?|theequationhas|ithas|has|the|itis|is)+|(?:function|number|value)s?$|s$"
)
_REALS_SAID = re.compile(r"^(?:all)?realnumbers?$|^allreals?$|^reals$|^thesetof(?:all)?realnumbers$")
_CONDITION = ("for", "where", "if", "when", "at", "as", "whenever", "provided", "unless", "given", "with")
_CONNECTING = (*_CONDITION, "all", "any", "every", "each", "some", ",", ")", r"\forall")
_RELATIONS = ("=", r"\le", r"\ge", "<", ">", r"\ne", r"\in", r"\equiv", r"\approx", r"\to", r"\Rightarrow", r"\propto", r"\subset", r"\subseteq", r"\notin", r"\cong", r"\sim", r"\perp", r"\parallel")  # fmt: skip
_REVERSED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}
_NUMERALS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
             "binary": 2, "octal": 8, "hexadecimal": 16, "twelve": 12}  # fmt: skip


@lru_cache(maxsize=4096)
def read(text: str) -> Answer:
    """The tree of an answer's text."""
    return _answer(_opened(tokens(clean(text))))


def _answer(parts: Tokens) -> Answer:
    parts = _trimmed(parts)
    for sense in (_choice, _conditioned, _approximated, _listed):
        found = sense(parts)
        if found is not None:
            return found
    return _item(parts)


# Cutting


def _trimmed(parts: Tokens) -> Tokens:
    """Without punctuation, plus signs and braces around the whole."""
    while parts:
        if parts[0].text in (".", ",", ";", ":", "+", "~", r"\therefore", r"\Rightarrow"):
            parts = parts[1:]
        elif parts[-1].text in (".", ",", ";", ":", "\\", r"\\", r"\ "):
            parts = parts[:-1]
        elif parts[0].text == "{" and closing(parts, 0) == len(parts) - 1:
            parts = parts[1:-1]
        else:
            return parts
    return parts


def _opened(parts: Tokens) -> Tokens:
    """Without what announces an answer: `\\text{The answer is}`, `Answer:`, `=`."""
    words = [token.text.lower() for token in parts[:6]]
    for at, word in enumerate(words):
        if word in ("answer", "solution", "result") and words[:at] in ([], ["the"], ["final"], ["the", "final"]):
            at += 1
            at += words[at : at + 1] in (["is"], ["are"])
            at += words[at : at + 1] in ([":"], ["="])
            if at < len(parts) and (words[at - 1] in ("is", "are", ":", "=")):
                return _opened(parts[at:])
    return parts[1:] if parts[:1] and parts[0].text == "=" else parts


def _split(parts: Tokens, *separators: str) -> list[Tokens]:
    """The pieces between these tokens at the top level."""
    pieces: list[list[Token]] = [[]]
    depth, bars = 0, 0
    for token in parts:
        depth += depth_change(token)
        if depth == 0 and token.text in separators:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [tuple(piece) for piece in pieces]


def _find(parts: Tokens, wanted: Callable[[Token], bool], start: int = 0) -> int:
    depth = 0
    for at, token in enumerate(parts):
        depth += depth_change(token)
        if at >= start and depth == 0 and wanted(token):
            return at
    return -1


def _texts(parts: Tokens) -> list[str]:
    return [token.text for token in parts]


def _is_words(parts: Tokens) -> bool:
    if any(token.text == "(" and beside.kind == "number" for token, beside in pairwise(parts)):
        return False
    return bool(parts) and all(
        token.kind == "word" or token.text in ("-", ".", "'", ",", "!", "?", r"\&", "(", ")") or (token.kind == "letters" and len(token.text) > 1)
        or (token.kind == "number" and at > 0)
        for at, token in enumerate(parts)
    ) and any(token.kind == "word" or (token.kind == "letters" and len(token.text) > 2) for token in parts)  # fmt: skip


# Senses of a whole answer


def _choice(parts: Tokens) -> Answer | None:
    """`(A) 30`, `A. 30`, `\\text{Option A}`, `(A)`; a letter by itself is one too."""
    texts = _texts(parts)
    if len(texts) > 1 and texts[0].lower() in ("option", "choice", "answer"):
        texts, parts = texts[1:], parts[1:]
    if len(texts) == 1 and re.fullmatch("[A-Z]", texts[0]):
        return Choice(texts[0])
    bracketed = len(texts) > 2 and texts[0] == "(" and texts[2] == ")"
    letter = texts[1] if bracketed else texts[0] if texts else ""
    if not re.fullmatch("[A-Z]", letter):
        return None
    rest = parts[3:] if bracketed else parts[2:] if texts[1:2] in ([")"], ["."], [":"]) else None
    if rest is None or (rest and not bracketed and not rest[0].spaced and texts[1] == "."):
        return None
    if not rest:
        return Choice(letter)
    if letter not in "ABCDE" or (rest[0].kind == "sign" and rest[0].text not in ("(", "[", "-", "{", r"\{")):
        return None
    return Choice(letter, _answer(_trimmed(rest)))


def _conditioned(parts: Tokens) -> Answer | None:
    """A condition behind a value: after `for`, `at`, `where`; `, x \\ne 2`; `k \\in \\mathbb{Z}`."""
    at = _find(
        parts, lambda token: token.kind == "word" and token.text.lower() in _CONDITION or token.text == r"\forall", 1
    )
    if at > 0 and not _is_words(parts):
        value = _trimmed(parts[:at])
        if value and value[-1].text == "(":
            value = value[:-1]
        return Conditioned(
            _answer(value), tuple(token for token in parts[at:] if token.text.lower() not in _CONNECTING)
        )
    pieces = _split(parts, ",", ";")
    if len(pieces) == 1 and parts and parts[-1].text == ")":
        opening = max(
            (at for at, token in enumerate(parts) if token.text == "(" and closing(parts, at) == len(parts) - 1),
            default=0,
        )
        inside = parts[opening + 1 : -1]
        if opening > 0 and (_find(inside, lambda token: token.text in (r"\in", r"\ne")) > 0):
            return Conditioned(_answer(parts[:opening]), inside)
    if len(pieces) > 1:
        last = _trimmed(pieces[-1])
        membership = len(last) >= 3 and last[1].text == r"\in" and last[-1].text.startswith(r"\mathbb")
        beside = (
            len(last) >= 3
            and last[1].text == r"\ne"
            and _find(pieces[0], lambda token: token.text in (*_RELATIONS,)) < 0
        )
        if membership or (beside and len(pieces) == 2):
            rest = parts[: len(parts) - len(pieces[-1]) - 1]
            return Conditioned(_answer(rest), last)
        first = _trimmed(pieces[0])
        if (
            len(pieces) == 2
            and len(first) == 3
            and first[1].text == r"\in"
            and first[2].text == r"\mathbb{R}"
            and _find(last, lambda token: token.text in _RELATIONS) > 0
        ):
            return _answer(last)
    return None


def _approximated(parts: Tokens) -> Answer | None:
    """`\\sqrt{2} \\approx 1.41` is both; `0.2 \\; (20%)` and `\\sqrt{6} (\\approx 2.449)` too."""
    at = _find(parts, lambda token: token.text == r"\approx")
    if at >= 0 and _find(parts, lambda token: token.text in (",", ";")) < 0:
        before, after = _trimmed(parts[:at]), _trimmed(parts[at + 1 :])
        if not after or not before:
            return _answer(after or before) if after or before else None
        left = _answer(before)
        if _is_name(before) and not isinstance(left, Choice):
            return Named(before, _answer(after))
        return Either((left, _answer(after)))
    if len(parts) > 3 and parts[-1].text == ")":
        opening = next(
            (at for at in range(len(parts)) if parts[at].text == "(" and closing(parts, at) == len(parts) - 1), 0
        )
        inside = parts[opening + 1 : -1]
        if (
            opening > 0
            and inside
            and (inside[0].text in (r"\approx", "=") or inside[-1].text == "%" or inside[0].text == "or")
        ):
            return Either(
                (
                    _answer(parts[:opening]),
                    _answer(inside[inside[0].kind in ("word", "command") or inside[0].text == "=" :]),
                )
            )
    return None


def _listed(parts: Tokens) -> Answer | None:
    """Several answers: between commas, semicolons, `and`, `or`, `\\cup`, or tuples side by side."""
    if _is_words(parts) and not any(token.text in (",", "and") for token in parts):
        return None
    joined: list[Token] = []
    for at, token in enumerate(parts):
        if (
            token.text == "("
            and at
            and parts[at - 1].text == ")"
            and "," in _texts(parts[at : closing(parts, at)])
            and _tuples(parts)
        ):
            joined.append(Token("sign", ","))
        joined.append(token)
    said = tuple(
        token._replace(text=token.text.lower())
        if token.text.lower() in ("and", "or") and token.kind in ("word", "letters")
        else token
        for token in joined
    )
    texts = _texts(said)
    if "or" in texts and texts[texts.index("or") + 1 : texts.index("or") + 2] in (
        ["less"],
        ["more"],
        ["fewer"],
        ["greater"],
        ["higher"],
    ):
        return None
    if "and" in texts and texts[texts.index("and") + 1 : texts.index("and") + 2] in (["a"], ["one"]):
        return None
    pieces = [_trimmed(piece) for piece in _split(said, ",", ";", "and", "or", r"\cup", "\\\\") if _trimmed(piece)]
    if len(pieces) < 2:
        return None if not pieces or len(pieces[0]) == len(parts) else _answer(pieces[0])
    if _is_words(parts) and "," not in texts and len(pieces) == 2 and not all(len(piece) <= 2 for piece in pieces):
        return None
    items = [_answer(piece) for piece in pieces]
    joint = (
        (_joint_bounds(items) or _joint_gaps(items))
        if "and" in texts
        else _joint_gaps(items)
        if "or" not in texts
        else None
    )
    if joint is not None:
        return joint
    if _same_forms(items, "or" in texts):
        return Either(tuple(items))
    return _group(items)


def _tuples(parts: Tokens) -> bool:
    """Whether all of it is bracketed tuples one after the other."""
    at = 0
    while at < len(parts):
        if parts[at].text == ",":
            at += 1
            continue
        if parts[at].text != "(" or "," not in _texts(parts[at : closing(parts, at)]):
            return False
        at = closing(parts, at) + 1
    return True


def _joint_bounds(items: list[Answer]) -> Answer | None:
    """`x \\ge 1 and x < 9` is one interval."""
    if len(items) != 2 or not all(isinstance(item, Bounded) for item in items):
        return None
    one, other = (item for item in items if isinstance(item, Bounded))
    if one.name != other.name or not isinstance(one.interval, Row) or not isinstance(other.interval, Row):
        return None
    below = [row for row in (one.interval, other.interval) if _infinite(row.items[1])]
    above = [row for row in (one.interval, other.interval) if _infinite(row.items[0])]
    if len(below) != 1 or len(above) != 1:
        return None
    try:
        ends = [exact(side.value) for side in (below[0].items[0], above[0].items[1]) if isinstance(side, Quantity)]
    except (NotRational, NoValue, TooLarge):
        return None
    if len(ends) != 2 or ends[0] >= ends[1]:
        return None
    return Bounded(one.name, Row(below[0].brackets[0] + above[0].brackets[1], (below[0].items[0], above[0].items[1])))


def _joint_gaps(items: list[Answer]) -> Answer | None:
    """`x \\ne 0, x \\ne 1` or `x \\ne 0, 1`: both points are missing."""
    first, points = items[0], []
    for item in items:
        gap = (
            isinstance(item, Bounded)
            and isinstance(item.interval, Group)
            and isinstance(first, Bounded)
            and item.name == first.name
        )
        if gap and isinstance(item.interval, Group):  # type: ignore[union-attr]
            points += [row.items[1] for row in item.interval.items[:-1] if isinstance(row, Row)]  # type: ignore[union-attr]
        elif isinstance(item, Quantity):
            points.append(item)
        else:
            return None
    if not isinstance(first, Bounded) or not isinstance(first.interval, Group):
        return None
    apart = _complement(Group(tuple(points)))
    return Bounded(first.name, apart) if isinstance(apart, Group) else None


def _infinite(side: Answer) -> bool:
    return isinstance(side, Quantity) and (side.value == INFINITY or side.value == Call("-", (INFINITY,)))


def _same_forms(items: list[Answer], said_or: bool) -> bool:
    """Whether these are spellings of one value: a fraction and a decimal, not one number twice."""
    values = []
    for item in items:
        item = item.value if isinstance(item, Named) else item
        if not isinstance(item, Quantity) or (
            item.value == (items[0].value if isinstance(items[0], Quantity) else None) and item is not items[0]
        ):
            return False
        try:
            percent = item.unit is not None and item.unit.dimensions == (("%", 1),)
            values.append(exact(item.value) / (100 if percent else 1))
        except (NotRational, NoValue, TooLarge):
            return False
    return len(set(values)) == 1


def _group(items: list[Answer]) -> Answer:
    flat: list[Answer] = []
    for item in items:
        for one in item.items if isinstance(item, Group) else (item,):
            # A solution that is given twice is one; of bare numbers each counts, they may be roots.
            if one not in flat or isinstance(one, Quantity):
                flat.append(one)
    if len(flat) == 1:
        return flat[0]
    first, *rest = flat
    names = [plain(item.name) if isinstance(item, Named) else "" for item in flat]
    if all(len(name) == 1 for name in names) and len(set(names)) == len(names):
        flat = [item for _, item in sorted(zip(names, flat, strict=True), key=lambda pair: pair[0])]
    if (
        isinstance(first, Named)
        and not any(isinstance(item, Named) for item in rest)
        and not isinstance(first.value, Row)
    ):
        flat[0] = first.value  # a = 4, -8, -10
    return Group(tuple(flat))


# One item


def _item(parts: Tokens) -> Answer:
    parts = _trimmed(parts)
    if not parts:
        return Text("")
    for sense in (_words, _time, _system, _related, _plus_minus, _set, _labelled, _bracketed, _matrix, _ratio, _based):
        found = sense(parts)
        if found is not None:
            return found
    return _quantity(parts)


def _words(parts: Tokens) -> Answer | None:
    texts = _texts(parts)
    if texts in ([r"\emptyset"], [r"\{", r"\}"], ["{", "}"]):
        return _EMPTY
    if texts in ([r"\mathbb{R}"], [r"\R"]):
        return _REALS
    if len(texts) > 1 and texts[0] == "-" and texts[1].lower() == "infinity":
        return Quantity(Call("-", (INFINITY,)))
    if not _is_words(parts):
        return None
    if (
        len(parts) == 1
        and parts[0].kind == "letters"
        and len(texts[0]) <= 3
        and not texts[0].isupper()
        and texts[0].lower() not in ("yes", "no", "odd")
    ):
        return None
    said = re.sub(r"[^a-z0-9]", "", plain(parts).lower())
    if _REALS_SAID.match(said):
        return _REALS
    said = _FILLING.sub("", said) or said
    said = said.removesuffix("s") if len(said) > 3 else said
    if _SYNONYMS.get(said) == "infinity":
        return Quantity(INFINITY)
    if len(parts) == 1 and len(texts[0]) == 1:
        return None
    return Text(_SYNONYMS.get(said, said if not texts[0].isupper() or len(parts) > 1 else texts[0].lower()))


def _time(parts: Tokens) -> Answer | None:
    found = re.fullmatch(r"(\d{1,2}(?::\d\d){1,2}) ?(?:([aApP])\.? ?[mM]?\.?)?", plain(parts).replace("\\text", ""))
    if not found or not (found[2] is None or "m" in plain(parts).lower()):
        return None
    time = tuple(map(int, found[1].split(":")))
    half = (found[2] or "").lower()
    return Ratio(tuple(Number(Fraction(one)) for one in time), time, half)


def _system(parts: Tokens) -> Answer | None:
    """`\\begin{cases} x = 7 \\\\ y = 1 \\end{cases}`: a list of equations."""
    if parts[0].text != r"\begin{cases}" or closing(parts, 0) != len(parts) - 1:
        return None
    rows = [_trimmed(tuple(t for t in row if t.text != "&")) for row in _split(parts[1:-1], r"\\")]
    items = [_answer(row) for row in rows if row]
    if any("&" in _texts(row) for row in _split(parts[1:-1], r"\\")) or not all(
        isinstance(item, Named) for item in items
    ):
        return Text(plain(parts), False)
    return _group(items)


def _is_name(parts: Tokens) -> bool:
    """Whether a left side is a name: one letter with an index, a function of letters, words, points."""
    if not parts:
        return False
    ratio = _split(parts, ":")
    if len(ratio) > 1:
        return all(_is_name(piece) or _is_measure(piece) for piece in ratio)
    if all(token.kind == "word" or token.text in ("(", ")", "'", "-", ",", ":", "of") for token in parts):
        return True
    text = plain(parts)
    return bool(
        re.fullmatch(
            r"(?:[a-zA-Z]|\\(?!frac|sqrt|binom|pi$)[a-zA-Z]+(?: ?\{[^{}]*\})?)(?:_\{[^{}]*\}|_\\?[a-zA-Z0-9]+)?(?:\^\{?[*'-]?1?\}?)?'*(?:\((?:[a-zA-Z\d,]|\\[a-z]+)+\))?",
            text,
        )
        and text not in ("e", "i")
    )


def _is_measure(parts: Tokens) -> bool:
    """`AB`, `|AB|`, `\\angle ABC`, `\\sin A`: names of what is a number."""
    return bool(re.fullmatch(
        r"\|?(?:m?\\(?:angle|triangle|overline|sin|cos|tan|cot) ?\{?)?(?:\[?[A-Z](?:_\{?\w\}?)?'?\]?)+\}?\|?|\\(?:sin|cos|tan|cot) ?(?:\\[a-z]+|[a-z])|\[[A-Z]+\]|[A-Z]\([^()]*\)",
        plain(parts),
    )) and not any(token.kind == "word" for token in parts)  # fmt: skip


def _related(parts: Tokens) -> Answer | None:
    """Names with values, memberships, inequalities of a letter as intervals, and other relations."""
    pieces, signs = _sides(parts)
    if not signs or not all(pieces):
        return None
    if r"\Rightarrow" in signs:
        return _answer(pieces[-1])
    if set(signs) == {"="}:
        return _equation(pieces)
    if signs == [r"\in"]:
        if len(pieces[0]) == 1 or _is_name(pieces[0]) or _is_name_row(pieces[0]):
            inner = _answer(pieces[1])
            return (
                inner
                if not isinstance(inner, Text) or not inner.readable
                else Relation(r"\in", (_answer(pieces[0]), inner))
            )
    if set(signs) <= {"<", r"\le"} or set(signs) <= {">", r"\ge"}:
        return _inequality(pieces, signs)
    if signs == [r"\ne"]:
        name = _name_of(pieces[0])
        if not name:
            pieces, name = pieces[::-1], _name_of(pieces[1])
        if name and not letters_of(_expr(pieces[1]) or Symbol("x")):
            apart = _complement(_answer(pieces[1]))
            return Bounded(name, apart) if isinstance(apart, Group) else None
    if signs[-1] == r"\approx":
        return None
    if len(signs) == 1:
        return Relation(signs[0], (_answer(pieces[0]), _answer(pieces[1])))
    return Text(plain(parts), False)


def _sides(parts: Tokens) -> tuple[list[Tokens], list[str]]:
    signs = []
    depth = 0
    for token in parts:
        depth += depth_change(token)
        if depth == 0 and token.text in _RELATIONS:
            signs.append(token.text)
    return [_trimmed(piece) for piece in _split(parts, *_RELATIONS)], signs


def _is_name_row(parts: Tokens) -> bool:
    inner = parts[1:-1] if parts and parts[0].text == "(" and parts[-1].text == ")" else parts
    pieces = _split(inner, ",")
    return len(pieces) > 1 and all(map(_is_name, map(_trimmed, pieces)))


def _equation(pieces: list[Tokens]) -> Answer:
    first, last = pieces[0], pieces[-1]
    value = _answer(last)
    if len(pieces) == 2 and _name_of(last) and not _is_name(first):
        first, last, value = last, first, _answer(first)  # 5 = x
    if _is_name(first):
        return Named(first, value)
    if _is_name_row(first):
        return Named(first, value)
    numeric = [piece for piece in pieces if not letters_of(_expr(piece) or Symbol("x"))]
    if len(numeric) == len(pieces):
        return value  # 0.56 = 56\%: spellings of one value
    quotient = (
        first[2 : closing(first, 1)]
        if first[0].text == r"\frac" and closing(first, closing(first, 1) + 1) == len(first) - 1
        else ()
    )
    if (_is_measure(first) or _is_measure(quotient)) and len(numeric) == len(pieces) - 1:
        return Named(first, value)
    if len(pieces) == 2 or len(numeric) == len(pieces) - 1:
        return Relation("=", (_answer(first), value))
    return Text("=".join(map(plain, pieces)), False)


def _name_of(parts: Tokens) -> str:
    """The letter that an inequality is about."""
    try:
        found = expression(parts)
    except Unreadable:
        return ""
    if isinstance(found, Symbol) and found.name not in ("pi", "e", "i", "infinity"):
        return found.name
    if (
        isinstance(found, Call)
        and found.name.endswith("()")
        and len(found.args) == 1
        and isinstance(found.args[0], Symbol)
    ):
        return found.name
    return ""


def _expr(parts: Tokens) -> Expr | None:
    found = _quantity(_trimmed(parts))
    return found.value if isinstance(found, Quantity) else None


def _inequality(pieces: list[Tokens], signs: list[str]) -> Answer:
    if signs[0] in (">", r"\ge"):
        pieces, signs = pieces[::-1], [_REVERSED[sign] for sign in signs[::-1]]
    low, high = Quantity(Call("-", (INFINITY,))), Quantity(INFINITY)
    if len(pieces) == 3 and (name := _name_of(pieces[1])):
        ends = (_answer(pieces[0]), _answer(pieces[2]))
        return Bounded(name, _interval("([)]"[signs[0] == r"\le"], "()"[1] if signs[1] == "<" else "]", ends))
    if len(pieces) == 2:
        for at, (side, other) in enumerate(((pieces[0], pieces[1]), (pieces[1], pieces[0]))):
            name = _name_of(side)
            if name and name not in letters_of(_expr(other) or Symbol(name)):
                closed = signs[0] == r"\le"
                if at == 0:
                    return Bounded(name, _interval("(", "]" if closed else ")", (low, _answer(other))))
                return Bounded(name, _interval("[" if closed else "(", ")", (_answer(other), high)))
        return Relation(signs[0], (_answer(pieces[0]), _answer(pieces[1])))
    return Text("".join(f"{plain(piece)}{sign}" for piece, sign in zip(pieces, [*signs, ""], strict=True)), False)


def _interval(opening: str, closing_: str, ends: tuple[Answer, ...]) -> Row:
    opening = "(" if _infinite(ends[0]) else opening
    return Row(opening + (")" if _infinite(ends[-1]) else closing_), ends)


def _plus_minus(parts: Tokens) -> Answer | None:
    signs = [token for token in parts if token.text in (r"\pm", r"\mp")]
    if not signs:
        return None
    sides = []
    for plus, minus in (("+", "-"), ("-", "+")):
        swapped = {r"\pm": plus, r"\mp": minus}
        sides.append(
            _item(
                tuple(
                    token._replace(kind="sign", text=swapped.get(token.text, token.text))
                    if token.text in swapped
                    else token
                    for token in parts
                )
            )
        )
    return _group(sides)


def _set(parts: Tokens) -> Answer | None:
    """`\\{...\\}`, builders, and differences of sets."""
    for sign in (r"\setminus", "-"):
        pieces = _split(parts, sign)
        if len(pieces) == 2 and _texts(pieces[0]) in ([r"\mathbb{R}"], [r"\R"]):
            return _complement(_answer(pieces[1]))
    if r"\cap" in _texts(parts) or r"\setminus" in _texts(parts):
        return Text(plain(parts), False)
    if parts[0].text != r"\{" or closing(parts, 0) != len(parts) - 1:
        return None
    inside = parts[1:-1]
    at = _find(inside, lambda token: token.text in ("|", ":"))
    if at > 0 and _find(inside[at + 1 :], lambda token: token.text in _RELATIONS) >= 0:
        return _answer(inside[at + 1 :])
    if not inside:
        return _EMPTY
    items = [_answer(piece) for piece in _split(inside, ",", ";") if piece]
    return Row(r"\{\}", tuple(items)) if items == [_EMPTY] else _group(items)


def _complement(of: Answer) -> Answer | None:
    """The reals without a point, points or an interval."""
    low, high = Quantity(Call("-", (INFINITY,))), Quantity(INFINITY)
    if isinstance(of, Row) and of.brackets[0] in "([" and len(of.items) == 2:
        turned = (")" if of.brackets[0] == "[" else "]", "(" if of.brackets[1] == "]" else "[")
        return _group([_interval("(", turned[0], (low, of.items[0])), _interval(turned[1], ")", (of.items[1], high))])
    points = of.items if isinstance(of, Group) else (of,)
    try:
        ordered = sorted(points, key=lambda point: exact(point.value) if isinstance(point, Quantity) else Fraction(0))
    except (NotRational, NoValue, TooLarge):
        if len(points) > 1:
            return Text("complement", False)
        ordered = list(points)
    return _group([Row("()", pair) for pair in pairwise((low, *ordered, high))])


def _labelled(parts: Tokens) -> Answer | None:
    """`A(7,1)`, `\\text{vertex } (7,1)`, `\\text{Ann: } 7`: the label may be left out."""
    at = next((at for at, token in enumerate(parts) if token.kind != "word" and token.text not in ("'", "-")), 0)
    if at and _texts(parts[at : at + 1]) == [":"] and len(parts) > at + 1:
        return Named(parts[:at], _answer(parts[at + 1 :]))
    name = parts[:at] if at else parts[:1] if re.fullmatch("[A-Z]", parts[0].text) else ()
    rest = parts[len(name) :]
    if (
        name
        and len(rest) > 1
        and rest[0].text in ("(", "[")
        and closing(rest, 0) == len(rest) - 1
        and len(_split(rest[1:-1], ",")) > 1
    ):
        return Named(name, _item(rest))
    return None


def _bracketed(parts: Tokens) -> Answer | None:
    opening, last = parts[0].text, parts[-1].text
    if opening not in ("(", "[") or last not in (")", "]"):
        if opening == "]" and last in ("[", "]") or (opening == "[" and last == "["):
            return None
        return None
    depth = 0
    for at, token in enumerate(parts):
        depth += depth_change(token)
        if depth == 0 and at < len(parts) - 1:
            return None
    pieces = [_trimmed(piece) for piece in _split(parts[1:-1], ",", ";")]
    if len(pieces) == 1:
        return _item(parts[1:-1]) if (opening, last) in (("(", ")"), ("[", "]")) else None
    if not all(pieces):
        return Text(plain(parts), False)
    return _interval(opening, last, tuple(_answer(piece) for piece in pieces))


_MATRICES = ("matrix", "pmatrix", "bmatrix", "vmatrix", "Bmatrix", "smallmatrix", "array")


def _matrix(parts: Tokens) -> Answer | None:
    found = re.fullmatch(r"\\begin\{(\w+)\}", parts[0].text)
    if not found or found[1] not in _MATRICES or closing(parts, 0) != len(parts) - 1:
        return None
    rows = []
    for line in _split(parts[1:-1], r"\\"):
        if line[:1] and line[0].text == "[" and line[2:4] and line[2].text in ("pt", "em", "ex", "mm", "cm"):
            line = line[closing(line, 0) + 1 :]
        if line:
            rows.append([_trimmed(cell) for cell in _split(line, "&")])
    entries = tuple(_item(cell) for row in rows for cell in row)
    shape = {len(entries): "column", 1: "row"}.get(len(rows), f"{len(rows)} rows")
    if found[1] == "vmatrix":
        shape = "det " + shape
    return Row(shape, entries)


def _ratio(parts: Tokens) -> Answer | None:
    pieces = _split(parts, ":")
    if len(pieces) == 1:
        pieces = _split(parts, "to") if any(token.kind == "word" and token.text == "to" for token in parts) else pieces
    if len(pieces) < 2 or not all(pieces):
        return None
    try:
        return Ratio(tuple(expression(_trimmed(piece)) for piece in pieces))
    except Unreadable:
        return Text(plain(parts), False)


def _based(parts: Tokens) -> Answer | None:
    text = re.sub(r"[\s(){}]", "", plain(parts))
    found = re.fullmatch(r"(-?(?=[A-F]*\d)[0-9A-F]+)_(?:base)?(\d{1,2}|[a-z]+)", text) or re.fullmatch(
        r"(-?(?=[A-F]*\d)[0-9A-F]+)(?:in)?base(\d{1,2}|[a-z]+)", text
    )
    if not found or (found[2].isalpha() and found[2] not in _NUMERALS):
        return None
    return Based(found[1], int(found[2]) if found[2].isdigit() else _NUMERALS[found[2]])


def _quantity(parts: Tokens) -> Answer:
    """An expression with a unit behind it: the longest tail that is a unit."""
    parts = _trimmed(parts)
    try:
        celsius = any(
            _texts(parts[at : at + 2])[-1:] in (["C"], ["F"]) and one.text == r"\circ" for at, one in enumerate(parts)
        )
        bare = celsius or any(
            token.kind == "letters" and _may_begin_unit(parts, at) for at, token in enumerate(parts) if at
        )
        if not bare and not any(token.kind == "word" and len(token.text) == 1 for token in parts[1:]):
            return _percented(expression(parts))
    except Unreadable:
        pass
    parts = _scaled(parts)
    for at in range(1, len(parts)):
        if not _may_begin_unit(parts, at):
            continue
        measure = unit(parts[at:])
        if measure is None:
            continue
        head = _trimmed(parts[:at])
        if head and head[-1].text in (r"\cdot", "-"):
            head = head[:-1]
        try:
            return Quantity(expression(head), measure)
        except Unreadable:
            continue
    try:
        return _percented(expression(parts))
    except Unreadable:
        return Text(plain(parts), False)


def _percented(found: Expr) -> Quantity:
    if isinstance(found, Call) and found.name in ("percent", "degrees"):
        return Quantity(found.args[0], Unit(dimensions=(("%" if found.name == "percent" else "deg", 1),)))
    if (
        isinstance(found, Call)
        and found.name == "-"
        and isinstance(found.args[0], Call)
        and found.args[0].name in ("percent", "degrees")
    ):
        inner = _percented(found.args[0])
        return replace(inner, value=Call("-", (inner.value,)))
    return Quantity(found)


def _may_begin_unit(parts: Tokens, at: int) -> bool:
    token, before = parts[at], parts[at - 1]
    if token.kind == "word":
        return True
    if token.kind == "letters" and (before.kind == "number" or before.text == "}"):
        return (
            (token.text in BARE and before.kind == "number")
            or token.text == "per"
            or (token.spaced and len(token.text) > 1 and (known(token.text) is not None or len(token.text) > 3))
        )
    if token.text == "%":
        return True
    if token.text == "^" and r"\circ" in _texts(parts[at + 1 : at + 3]):
        return True
    if token.text in (r"\frac", r"\mu", r"\Omega", "("):
        return any(one.kind == "word" for one in parts[at + 1 :]) or (token.text == r"\Omega" and at == len(parts) - 1)
    return False


def _scaled(parts: Tokens) -> Tokens:
    """`6 \\text{ million people}` as 6 times ten to the sixth, people."""
    for at, token in enumerate(parts):
        if at and token.text.lower() in SCALES and (token.kind == "word" or token.spaced):
            money = [one for one in parts[:at] if one.kind == "word"]
            power = (
                Token("command", r"\cdot"),
                Token("number", "10"),
                Token("sign", "^"),
                Token("sign", "{"),
                Token("number", str(SCALES[token.text.lower()])),
                Token("sign", "}"),
            )
            return (*(one for one in parts[:at] if one.kind != "word"), *power, *money, *parts[at + 1 :])
    return parts
