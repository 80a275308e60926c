"""From tokens to the tree of an answer. All spellings are resolved here: `compare` never looks at text."""

import re
from dataclasses import replace
from functools import lru_cache, partial

from real_openrlhf.rewards.verifier.reading.cutting import (
    RELATIONS,
    find,
    is_name,
    is_words,
    listing,
    opened,
    sides_and_signs,
    split,
    texts_of,
    trimmed,
)
from real_openrlhf.rewards.verifier.reading.grammar import expression
from real_openrlhf.rewards.verifier.reading.quantities import expr_of, read_based, read_quantity, read_time, read_words
from real_openrlhf.rewards.verifier.reading.relations import (
    as_group,
    as_interval,
    complement,
    intersection,
    joint,
    related,
    same_forms,
)
from real_openrlhf.rewards.verifier.reading.tex import Tokens, clean, closing, plain, tokens
from real_openrlhf.rewards.verifier.reading.tree import (
    NOTHING,
    Answer,
    Call,
    Choice,
    Conditioned,
    Either,
    Group,
    Named,
    Quantity,
    Ratio,
    Row,
    Text,
    Unreadable,
)
from real_openrlhf.rewards.verifier.reading.units import unit

_SAME = "attained achieved reached obtained for where if when at as whenever provided given with".split()
_CONDITION = (*_SAME, "unless")  # `unless` means the opposite of the others
_CONNECTING = (*_SAME, "all", "any", "every", "each", "some", ",", ")", r"\forall")
_BOUNDING = {r"\in", r"\ne", r"\le", r"\ge", "<", ">"}
_MATRICES = ("matrix", "pmatrix", "bmatrix", "vmatrix", "Bmatrix", "smallmatrix", "array")


@lru_cache(maxsize=4096)
def read(text: str) -> Answer:
    """The tree of an answer's text."""
    return answer_of(opened(tokens(clean(text))))


def answer_of(parts: Tokens) -> Answer:
    parts = trimmed(parts)
    for sense in (_choice, _conditioned, _approximated, _listed):
        found = sense(parts)
        if found is not None:
            return found
    return _item(parts)


def _choice(parts: Tokens) -> Answer | None:
    """`(A) 30`, `A. 30`, `\\text{Option A}`, `(A)`, or a single letter."""
    texts = texts_of(parts)
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
    return Choice(letter, answer_of(trimmed(rest)))


def _conditioned(parts: Tokens) -> Answer | None:
    """A condition behind a value: after `for`, `at`, `where`; `, x \\ne 2`; `k \\in \\mathbb{Z}`."""
    at = find(
        parts, lambda token: token.kind == "word" and token.text.lower() in _CONDITION or token.text == r"\forall", 1
    )
    if at > 0 and not is_words(parts):
        value = trimmed(parts[:at])
        if value and value[-1].text == "(":
            value = value[:-1]
        return Conditioned(
            answer_of(value), tuple(token for token in parts[at:] if token.text.lower() not in _CONNECTING)
        )
    opening = next(
        (at for at in range(1, len(parts)) if parts[at].text == "(" and closing(parts, at) == len(parts) - 1), 0
    )
    inside = parts[opening + 1 : -1]
    if opening and parts[opening - 1].text != ",":
        begins = inside[:1] and inside[0].kind == "word" and inside[0].text.lower() in _CONDITION
        if begins or _bounds(inside):
            return Conditioned(answer_of(parts[:opening]), inside)
    *pieces, last = split(parts, ",", ";")
    head, last = parts[: len(parts) - len(last) - 1], trimmed(last)
    if not pieces or not _bounds(last):
        return None
    if texts_of(pieces[0])[1:] == [r"\in", r"\mathbb{R}"]:
        return answer_of(last)
    integer = last[1].text == r"\in" and last[-1].text.startswith(r"\mathbb")
    valued = find(head, lambda token: token.text in RELATIONS and token.text != "=") < 0
    return Conditioned(answer_of(head), last) if integer or valued else None


def _bounds(parts: Tokens) -> bool:
    """Whether this is an inequality or a membership of one letter: a condition on the value beside it."""
    sides, signs = sides_and_signs(parts)
    return bool(signs) and set(signs) <= _BOUNDING and all(sides) and any(map(is_name, sides))


def _approximated(parts: Tokens) -> Answer | None:
    """Two forms of one value: `\\sqrt{2} \\approx 1.41`; `0.2 \\; (20%)` and `\\sqrt{6} (\\approx 2.449)`."""
    at = find(parts, lambda token: token.text == r"\approx")
    if at >= 0 and find(parts, lambda token: token.text in (",", ";")) < 0:
        before, after = trimmed(parts[:at]), trimmed(parts[at + 1 :])
        if not after or not before:
            return answer_of(after or before) if after or before else None
        left = answer_of(before)
        if is_name(before) and not isinstance(left, Choice):
            return Named(before, answer_of(after))
        return Either((left, answer_of(after)))
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
                    answer_of(parts[:opening]),
                    answer_of(inside[inside[0].kind in ("word", "command") or inside[0].text == "=" :]),
                )
            )
    return None


def _listed(parts: Tokens) -> Answer | None:
    """Several answers: between commas, semicolons, `and`, `or`, `\\cup`, or tuples side by side."""
    if is_words(parts) and not any(token.text in (",", "and") for token in parts):
        return None
    found = listing(parts)
    if found is None:
        return None
    pieces, said = found
    if len(pieces) == 1:
        return None if len(pieces[0]) == len(parts) else answer_of(pieces[0])
    items = [answer_of(piece) for piece in pieces]
    return joint(items, said) or (Either(tuple(items)) if same_forms(items) else _alternatives(items, said))


def _alternatives(items: list[Answer], said: set[str]) -> Answer:
    found = as_group(items)
    different = len({*items}) == len(items)
    return replace(found, alternatives="or" in said and different) if isinstance(found, Group) else found


def _item(parts: Tokens) -> Answer:
    parts = trimmed(parts)
    if not parts:
        return Text("")
    for sense in (
        read_words,
        _measured,
        read_time,
        _system,
        partial(related, answer=answer_of),
        _plus_minus,
        _set,
        _labelled,
        _bracketed,
        _matrix,
        _ratio,
        read_based,
    ):
        found = sense(parts)
        if found is not None:
            return found
    return read_quantity(parts)


def _measured(parts: Tokens) -> Answer | None:
    """A point or a set with a unit behind it, which is left out."""
    end = closing(parts, 0)
    behind = parts[end + 1 :]
    if parts[0].text not in ("(", "[", r"\{") or not behind or behind[0].kind != "word" or unit(behind) is None:
        return None
    return _item(parts[: end + 1])


def _system(parts: Tokens) -> Answer | None:
    """`\\begin{cases} x = 7 \\\\ y = 1 \\end{cases}`: a list of equations."""
    if parts[0].text != r"\begin{cases}" or closing(parts, 0) != len(parts) - 1:
        return None
    rows = [trimmed(tuple(t for t in row if t.text != "&")) for row in split(parts[1:-1], r"\\")]
    items = [answer_of(row) for row in rows if row]
    if any("&" in texts_of(row) for row in split(parts[1:-1], r"\\")) or not all(
        isinstance(item, Named) for item in items
    ):
        return Text(plain(parts), False)
    return as_group(items)


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
    return as_group(sides)


def _set(parts: Tokens) -> Answer | None:
    """`\\{...\\}`, builders, and differences of sets."""
    for sign in (r"\setminus", "-"):
        pieces = split(parts, sign)
        if len(pieces) == 2 and (sign != "-" or texts_of(pieces[0]) in ([r"\mathbb{R}"], [r"\R"])):
            whole, apart = map(answer_of, pieces)
            rest = complement(apart.value if isinstance(apart, Named) else apart)
            return (rest and intersection([whole, rest])) or Text(plain(parts), False)
    if r"\cap" in texts_of(parts) or r"\setminus" in texts_of(parts):
        return Text(plain(parts), False)
    if parts[0].text != r"\{" or closing(parts, 0) != len(parts) - 1:
        return None
    inside = parts[1:-1]
    at = find(inside, lambda token: token.text in ("|", ":"))
    if at > 0 and find(inside[at + 1 :], lambda token: token.text in RELATIONS) >= 0:
        return answer_of(inside[at + 1 :])
    if not inside:
        return NOTHING
    items = [answer_of(piece) for piece in split(inside, ",", ";") if piece]
    found = as_group(items)
    if found == NOTHING:
        return Row(r"\{\}", (NOTHING,))
    return replace(found, braced=True) if isinstance(found, Group) else found


def _labelled(parts: Tokens) -> Answer | None:
    """`A(7,1)`, `\\text{vertex } (7,1)`, `\\text{Ann: } 7`: the label may be left out."""
    at = next((at for at, token in enumerate(parts) if token.kind != "word" and token.text not in ("'", "-")), 0)
    if parts[0].kind == "letters" and len(parts[0].text) > 2:
        at = 1
    if at and texts_of(parts[at : at + 1]) == [":"] and len(parts) > at + 1:
        return Named(parts[:at], answer_of(parts[at + 1 :]))
    name = parts[:at] if at else parts[:1] if re.fullmatch("[A-Z]", parts[0].text) else ()
    rest = parts[len(name) :]
    if (
        name
        and len(rest) > 1
        and rest[0].text in ("(", "[")
        and closing(rest, 0) == len(rest) - 1
        and len(split(rest[1:-1], ",", ";")) > 1
    ):
        return Named(name, _item(rest))
    return None


def _bracketed(parts: Tokens) -> Answer | None:
    opening, last = parts[0].text, parts[-1].text
    if opening not in ("(", "[") or last not in (")", "]") or closing(parts, 0) < len(parts) - 1:
        return None
    pieces = [trimmed(piece) for piece in split(parts[1:-1], ",", ";")]
    if len(pieces) == 1:
        return _item(parts[1:-1]) if (opening, last) in (("(", ")"), ("[", "]")) else None
    if not all(pieces):
        return Text(plain(parts), False)
    return as_interval(opening, last, tuple(answer_of(piece) for piece in pieces))


def _matrix(parts: Tokens) -> Answer | None:
    begin = next((at for at, token in enumerate(parts) if token.text.startswith(r"\begin{")), -1)  # behind a factor
    found = re.fullmatch(r"\\begin\{(\w+)\}", parts[begin].text)
    if begin < 0 or not found or found[1] not in _MATRICES or closing(parts, begin) != len(parts) - 1:
        return None
    factor = expr_of(parts[:begin]) if begin else None
    if begin and (factor is None or found[1] == "array"):
        return None
    parts = parts[begin:]
    rows = []
    for line in split(parts[1:-1], r"\\"):
        if line:
            rows.append([trimmed(cell) for cell in split(line, "&")])
    entries = tuple(_item(cell) for row in rows for cell in row)
    if factor is not None:
        entries = tuple(
            Quantity(Call("*", (factor, entry.value))) if isinstance(entry, Quantity) else entry for entry in entries
        )
    if found[1] == "array" and len(entries) == 1:
        return entries[0]
    shape = {len(entries): "column", 1: "row"}.get(len(rows), f"{len(rows)} rows")
    if found[1] == "vmatrix":
        shape = "det " + shape
    return Row(shape, entries)


def _ratio(parts: Tokens) -> Answer | None:
    pieces = split(parts, ":")
    if len(pieces) == 1:
        pieces = split(parts, "to") if any(token.kind == "word" and token.text == "to" for token in parts) else pieces
    if len(pieces) < 2 or not all(pieces):
        return None
    try:
        return Ratio(tuple(expression(trimmed(piece)) for piece in pieces))
    except Unreadable:
        return Text(plain(parts), False)
