"""Cut tokens into pieces and classify the pieces; this module makes no answers."""

import re
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

from same_answer.reading.tex import Token, Tokens, closing, depth_change, texts_of, untokenize
from same_answer.reading.words import NEGATING, denies

RELATIONS = ("=", r"\le", r"\ge", "<", ">", r"\ne", r"\in", r"\equiv", r"\approx", r"\to", r"\Rightarrow", r"\propto",
             r"\subset", r"\subseteq", r"\notin", r"\cong", r"\sim", r"\perp", r"\parallel")  # fmt: skip
_NO_CONJUNCTION = {*(("or", word) for word in "less more fewer greater higher".split()), ("and", "a"), ("and", "one")}
_DESCRIBING = set("the a minimum maximum min max value total sum of final answer result probability area".split())
_TITLE = re.compile(r"(?:the )?(?:final )?(?:answer|solution|result)(?: is| are)?(?: )?")
_ANNOUNCING = "is are be get gets gives have has obtain equals was approximately so thus hence therefore then".split()


def trimmed(parts: Tokens) -> Tokens:
    """The tokens without outer punctuation, a leading plus sign, and braces around the whole."""
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


def opened(parts: Tokens) -> Tokens:
    """The last value of a derivation, without what announces it: `The answer is`, `Since a = 7, we get`, `Answer:`."""
    words = [token.text.lower() if token.kind in ("word", "letters") else "" for token in parts]
    for at in range(len(parts) - 1, 0, -1):
        titled = _TITLE.fullmatch(" ".join(words[:at])) is not None and parts[at - 1].text in (":", "=", "is", "are")
        follows = words[at - 1] in _ANNOUNCING and parts[at - 1].kind == "word" and parts[at].kind != "word"
        if titled or (follows and not NEGATING & set(words[:at]) and not sum(map(depth_change, parts[:at]))):
            said = [token for token in parts[:at] if token.kind != "word" and token.text != ","]
            other = [token.kind for token in said] == ["number"] and said[0].text != parts[at].text  # 4, so 5
            return parts if other else opened(parts[at:])
    if parts[:1] and parts[0].text == "=":
        return parts[1:]
    end = next((at for at, token in enumerate(parts) if token.kind != "word" and token.text != ","), 0)
    phrase = words[:end]
    if phrase in (["yes", ""], ["all"], ["for", "all"]) or (phrase == ["the"] and parts[end].kind == "number"):
        return parts[end:]
    describing = end and set(phrase) <= _DESCRIBING and parts[end].text not in (*RELATIONS, ".", ")", ":")
    return parts[end:] if describing else parts


def _deep(parts: Tokens) -> Iterator[tuple[int, Token]]:
    """Each token, and the number of brackets around what follows it."""
    return zip(accumulate(map(depth_change, parts)), parts, strict=True)


def split(parts: Tokens, *separators: str) -> list[Tokens]:
    """The pieces between these tokens at the top level."""
    pieces: list[list[Token]] = [[]]
    for depth, token in _deep(parts):
        if depth == 0 and token.text in separators:
            pieces.append([])
        else:
            pieces[-1].append(token)
    return [tuple(piece) for piece in pieces]


def find(parts: Tokens, wanted: Callable[[Token], bool], start: int = 0) -> int:
    deep = enumerate(_deep(parts))
    return next((at for at, (depth, token) in deep if at >= start and depth == 0 and wanted(token)), -1)


def is_words(parts: Tokens) -> bool:
    if any(token.text == "(" and (beside.kind == "number" or beside.text == "-") for token, beside in pairwise(parts)):
        return False
    if texts_of(parts[:1]) == ["-"] and parts[1:2] and parts[1].kind == "number":
        return False
    return bool(parts) and all(
        token.kind == "word" or token.text in ("-", ".", "'", ",", "!", "?", r"\&", "(", ")")
        or (token.kind == "letters" and len(token.text) > 1)
        or (token.kind == "number" and at > 0)
        for at, token in enumerate(parts)
    ) and any(
        token.kind == "word" or (token.kind == "letters" and len(token.text) > 2) for token in parts
    )  # fmt: skip


def listing(parts: Tokens) -> tuple[list[Tokens], set[str]] | None:
    """(pieces between commas, `and`, `or`, unions and adjacent tuples; texts of all tokens); None for a phrase."""
    joined: list[Token] = []
    side_by_side = are_tuples(parts)
    logical = {r"\land": "and", r"\lor": "or"} if any(token.text in RELATIONS for token in parts) else {}  # not p, q
    for at, token in enumerate(parts):
        if side_by_side and token.text == "(" and at and parts[at - 1].text == ")":
            joined.append(Token("sign", ","))
        token = token._replace(text=logical.get(token.text, token.text))
        conjunction = token.text.lower() in ("and", "or") and (logical or token.kind in ("word", "letters"))
        joined.append(token._replace(text=token.text.lower()) if conjunction else token)
    texts = texts_of(tuple(joined))
    if any(pair in _NO_CONJUNCTION for pair in pairwise(texts)):
        return None
    pieces = [*filter(None, map(trimmed, split(tuple(joined), ",", ";", "and", "or", r"\cup", "\\\\")))]
    phrase = is_words(parts) and "," not in texts and len(pieces) == 2 and not all(len(piece) <= 2 for piece in pieces)
    return None if not pieces or phrase else (pieces, set(texts))


def are_tuples(parts: Tokens) -> bool:
    """Whether the tokens are bracketed tuples, one after the other, and nothing else."""
    at = 0
    while at < len(parts):
        if parts[at].text == ",":
            at += 1
            continue
        if parts[at].text != "(" or "," not in texts_of(parts[at : closing(parts, at)]):
            return False
        at = closing(parts, at) + 1
    return True


def is_name(parts: Tokens) -> bool:
    """Whether a left side is a name: one letter with an index, a function of letters, words, points."""
    if not parts:
        return False
    ratio = split(parts, ":")
    if len(ratio) > 1:
        return all(is_name(piece) or is_measure(piece) for piece in ratio)
    if all(token.kind == "word" or token.text in ("(", ")", "'", "-", ",", ":", "of") for token in parts):
        return not denies(texts_of(parts))
    text = untokenize(parts)
    return bool(
        re.fullmatch(
            r"(?:[a-zA-Z]|[A-Z]{2,5}(?=_)|\\(?!frac|sqrt|binom|pi$)[a-zA-Z]+(?: ?\{[^{}]*\})?)"
            r"(?:_\{[^{}]*\}|_\\?[a-zA-Z0-9]+)?(?:\^\{?[*'-]?1?\}?)?'*(?:\((?:[a-zA-Z\d,]|\\[a-z]+)+\))?",
            text,
        )
        and text not in ("e", "i")
    )


def is_measure(parts: Tokens) -> bool:
    """`AB`, `|AB|`, `\\angle ABC`, `\\sin A`: names of measured quantities."""
    return bool(re.fullmatch(
        r"\|?(?:m?\\(?:angle|triangle|overline|sin|cos|tan|cot) ?\{?)?(?:\[?[A-Z](?:_\{?\w\}?)?'?\]?)+\}?\|?"
        r"|\\(?:sin|cos|tan|cot) ?(?:\\[a-z]+|[a-z])|\[[A-Z]+\]|[A-Z]\([^()]*\)",
        untokenize(parts),
    )) and not any(token.kind == "word" for token in parts)  # fmt: skip


def sides_and_signs(parts: Tokens) -> tuple[list[Tokens], list[str]]:
    signs = [token.text for depth, token in _deep(parts) if depth == 0 and token.text in RELATIONS]
    return [trimmed(piece) for piece in split(parts, *RELATIONS)], signs


def is_name_row(parts: Tokens) -> bool:
    inner = parts[1:-1] if parts and parts[0].text == "(" and parts[-1].text == ")" else parts
    pieces = split(inner, ",")
    return len(pieces) > 1 and all(map(is_name, map(trimmed, pieces)))
