"""How an expression is written: what counts as the same form, what is a part of it, and how much work it leaves."""

from collections import Counter

from same_answer.arithmetic import NoFraction, exact
from same_answer.reading.tex import FUNCTIONS
from same_answer.reading.tree import Answer, Call, Expr, Number, quantity

_FLAT = ("+", "*")
_FUNCTION = 3  # a sine is more work than a sum


def form(expr: Expr) -> str:
    """An expression as text, in one order of its terms and factors."""
    if not isinstance(expr, Call):
        return str(expr.value if isinstance(expr, Number) else expr.name)
    args = [form(arg) for arg in parts(expr)]
    return f"{expr.name}({','.join(sorted(args) if expr.name in _FLAT else args)})"


def form_of(answer: Answer) -> str:
    """An answer of any kind as text."""
    value = quantity(answer)
    return str(answer) if value is None else form(value)


def parts(expr: Expr) -> list[Expr]:
    """All terms of a sum, all factors of a product, else the arguments."""
    if not isinstance(expr, Call):
        return []
    if expr.name not in _FLAT:
        return [*expr.args]
    nested = (parts(arg) if isinstance(arg, Call) and arg.name == expr.name else [arg] for arg in expr.args)
    return [part for pieces in nested for part in pieces]


def contains(whole: Expr, part: Expr) -> bool:
    """Whether an expression has another one as a part: `a+b` is one of `2(b+a)` and of `a+7+b`."""
    if form(whole) == form(part):
        return True
    pieces = parts(whole)
    if isinstance(whole, Call) and whole.name in _FLAT and isinstance(part, Call) and part.name == whole.name:
        if Counter(map(form, parts(part))) <= Counter(map(form, pieces)):
            return True
    return any(contains(piece, part) for piece in pieces)


def work(expr: Expr) -> int:
    """How many operations an expression leaves to do; a sign and a fraction of two numbers leave none."""
    if not isinstance(expr, Call):
        return 0
    fraction = expr.name == "/" and all(isinstance(arg, Number) for arg in expr.args)
    own = 0 if expr.name == "-" or fraction else _FUNCTION if expr.name in FUNCTIONS else 1
    return own + sum(map(work, expr.args))


def simple(expr: Expr, inside: bool = False) -> Expr:
    """The expression with roots as powers, and with the numbers in it worked out; a number itself stays as it is."""
    if inside and not isinstance(expr, Number):
        try:
            return Number(exact(expr))
        except NoFraction:
            pass
    if not isinstance(expr, Call):
        return expr
    args = [simple(arg, True) for arg in expr.args]
    if expr.name == "root" and isinstance(args[0], Number) and args[0].value:
        return Call("^", (args[1], Number(1 / args[0].value)))
    return Call(expr.name, tuple(args))
