"""Compare names of answers, functions and letters."""

import re

from real_openrlhf.rewards.verifier.reading.tex import Tokens, plain
from real_openrlhf.rewards.verifier.reading.tree import Answer, Call, Expr, Named, Quantity, Row, Symbol, letters_of

_DECORATION = str.maketrans("", "", "|{}[]() '")


def same_name(gold: Named, answer: Named) -> bool:
    """`|AB|` is `AB`, `f(x)` is `f`, `x_{1}` is `x`; words match any symbol, and words that contain them."""
    one, other = plain(gold.name), plain(answer.name)
    drop = (r"m\angle", r"\angle", r"\triangle", r"\overline")
    for word in drop:
        one, other = one.replace(word, ""), other.replace(word, "")
    if one.translate(_DECORATION) == other.translate(_DECORATION):
        return True
    worded = [any(token.kind == "word" and len(token.text) > 1 for token in side.name) for side in (gold, answer)]
    if all(worded):
        return one.lower().replace(" ", "") in other.lower().replace(" ", "") or other.lower().replace(
            " ", ""
        ) in one.lower().replace(" ", "")
    if any(worded):
        return True
    bases = [name.split("_")[0].split("(")[0] for name in (one, other)]
    return bases[0] == other or bases[1] == one


def base_name(item: Answer) -> str:
    return plain(item.name).partition("_")[0] if isinstance(item, Named) else ""


def in_argument_of(gold: Named, answer: Named) -> Named:
    """The answer in the gold's argument: `f(t) = t + 1` becomes `f(x) = x + 1`."""
    named = [re.fullmatch(r"([a-zA-Z])\(([a-zA-Z])\)", plain(side.name)) for side in (gold, answer)]
    if (
        named[0]
        and named[1]
        and named[0][1] == named[1][1]
        and isinstance(answer.value, Quantity)
        and named[0][2] not in letters_of(answer.value.value)
    ):
        return Named(gold.name, Quantity(_renamed(answer.value.value, named[1][2], named[0][2])))
    return answer


def chosen(value: Answer, named: Named) -> Answer:
    """`C(9,4)` beside a number is a binomial, not a point."""
    if isinstance(value, Row) and plain(named.name) == "C" and len(value.items) == 2:
        top, bottom = value.items
        if isinstance(top, Quantity) and isinstance(bottom, Quantity):
            return Quantity(Call("binomial", (top.value, bottom.value)))
    return value


def in_letters_of(gold: Expr, answer: Expr) -> Expr:
    """The answer with constants of integration in the gold's case: `Ce^{-x}` becomes `ce^{-x}`."""
    wanted, given = letters_of(gold), letters_of(answer)
    changed = {name: name[0].swapcase() + name[1:] for name in wanted - given if name[0] in "cCkK"}
    if changed and set(changed.values()) == given - wanted and len(changed) == len(wanted - given):
        for name, other in changed.items():
            answer = _renamed(answer, other, name)
    return answer


def _renamed(expr: Expr, old: str, new: str) -> Expr:
    if isinstance(expr, Symbol):
        return Symbol(new) if expr.name == old else expr
    return Call(expr.name, tuple(_renamed(arg, old, new) for arg in expr.args)) if isinstance(expr, Call) else expr


def condition(parts: Tokens) -> str:
    """A condition as text; `k \\in \\mathbb{Z}` and `k is an integer` give the same text."""
    said = plain(parts).lower().replace(" ", "")
    whole = re.sub(r"\\in\\mathbb\{z\}|(?:isan|are|any)?integers?", "", said)
    return whole if whole == said else whole + " whole"
