"""Compare names of answers, functions and letters."""

from real_openrlhf.verifier.reading.tex import Tokens, untokenize
from real_openrlhf.verifier.reading.tree import Answer, Call, Expr, Row, Symbol, letters_of, quantity

_DECORATION = str.maketrans("", "", "|{}[]() '")


def same_name(gold: Tokens, answer: Tokens) -> bool:
    """`|AB|` is `AB`, `f(x)` is `f`, `x_{1}` is `x`; words match any symbol, and words that contain them."""
    one, other = untokenize(gold), untokenize(answer)
    drop = (r"m\angle", r"\angle", r"\triangle", r"\overline")
    for word in drop:
        one, other = one.replace(word, ""), other.replace(word, "")
    if one.translate(_DECORATION) == other.translate(_DECORATION):
        return True
    worded = [any(token.kind == "word" and len(token.text) > 1 for token in side) for side in (gold, answer)]
    if all(worded):
        one, other = (name.lower().replace(" ", "") for name in (one, other))
        return one in other or other in one
    if any(worded):
        return True
    bases = [name.split("_")[0].split("(")[0] for name in (one, other)]
    return bases[0] == other or bases[1] == one


def base_name(item: Answer) -> str:
    return untokenize(item.name).partition("_")[0]


def as_number(point: Answer) -> Answer:
    """`C(9,4)` beside a number is a binomial, not a point."""
    if isinstance(point.value, Row) and untokenize(point.name) == "C" and len(point.value.items) == 2:
        top, bottom = map(quantity, point.value.items)
        if top and bottom:
            return Answer(Call("binomial", (top, bottom)))
    return point


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
