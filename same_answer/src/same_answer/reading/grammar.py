"""Expressions from tokens, by recursive descent."""

import contextlib
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, reduce

from same_answer.reading.budget import DEEPEST, Exhausted
from same_answer.reading.tex import FUNCTIONS, GREEK, INVERTIBLE, Token, Tokens, closing, texts_of, untokenize
from same_answer.reading.tree import CONSTANTS, Call, Expr, NoExpression, Number, Symbol

UNFINISHED = (r"\sum", r"\int", r"\iint", r"\oint", r"\prod", r"\lim", r"\limsup", r"\liminf", r"\bigcup", r"\bigcap")
_DECORATED = (r"\overline", r"\vec", r"\hat", r"\bar", r"\dot", r"\tilde", r"\widehat", r"\ddot", r"\overrightarrow")
_SYMBOLS = "hbar partial nabla aleph Re Im clubsuit heartsuit spadesuit diamondsuit".split()
_NAMES = frozenset(f"\\{name}" for name in (*GREEK, *_SYMBOLS))
_FENCES = {"(": ")", "[": "]", "{": "}", r"\lfloor": r"\rfloor", r"\lceil": r"\rceil"}
_MAX_DIGITS = 4_000
_APPLIED = "fghFGHP"  # letters that stand for functions where a parenthesis follows
_DERIVATIVE = re.compile(
    r"\{(?:d|\\partial) ?(?:\^\{?\d\}?)?\\?[a-zA-Z]*\}\{(?:d ?|\\partial ?)\\?[a-zA-Z]+(?:\^\{?\d\}?)?\}"
)  # \frac{dy}{dx}, not \frac{d}{d+1}


@lru_cache(maxsize=4096)
def expression(parts: Tokens) -> Expr:
    """The tree of the tokens; raises NoExpression if they are no expression, and for sums, integrals and limits."""
    if not parts or any(token.text in UNFINISHED for token in parts):
        raise NoExpression(untokenize(parts))  # the verifier does not evaluate these
    reader = _Reader(parts)
    tree = reader.sum()
    if reader.at < len(parts):
        raise NoExpression(untokenize(parts))
    return tree


class _Reader:
    def __init__(self, parts: Tokens):
        self.parts, self.at, self.bars, self.depth = parts, 0, 0, 0
        self.unmixed: set[int] = set()  # fractions that are no part of a mixed number: each is tried once

    def peek(self, ahead: int = 0) -> str:
        return self.parts[self.at + ahead].text if 0 <= self.at + ahead < len(self.parts) else ""

    def kind(self, ahead: int = 0) -> str:
        return self.parts[self.at + ahead].kind if 0 <= self.at + ahead < len(self.parts) else ""

    def take(self, expected: str = "") -> Token:
        if self.at >= len(self.parts) or (expected and self.peek() != expected):
            raise NoExpression(untokenize(self.parts))
        self.at += 1
        return self.parts[self.at - 1]

    def sum(self) -> Expr:
        terms = [self.signed(self.factors)]
        while self.peek() in ("+", "-"):
            sign, term = self.take().text, self.signed(self.factors)
            terms.append(term if sign == "+" else Call("-", (term,)))
        return _joined("+", terms)

    def signed(self, of: Callable[[], Expr]) -> Expr:
        """The expression that `of` reads, with any number of signs in front."""
        negative = False
        while self.peek() in ("+", "-"):
            negative ^= self.take().text == "-"
        value = of()
        return Call("-", (value,)) if negative else value

    def factors(self) -> Expr:
        product: list[Expr] = []
        total, quotients = self.power(), 0
        while True:
            if self.peek() in (r"\cdot", "/"):
                name = "/" if self.take().text == "/" else "*"
                run = self.peek() if name == "/" and self.kind() == "letters" else ""
                factor = self.signed(self.power)
                for _ in run[1:]:  # t/RC
                    factor = Call("*", (factor, self.power()))
            elif self.peek() == r"\mod":
                self.take()
                name, factor = "mod", self.power()
            elif self.begins_factor():
                name, factor = "*", self.power()
            else:
                return _joined("*", [total, *product])
            if name == "*":
                product.append(factor)
                continue
            total, product, quotients = Call(name, (_joined("*", [total, *product]), factor)), [], quotients + 1
            if quotients > DEEPEST:
                raise Exhausted

    def begins_factor(self) -> bool:
        text, kind = self.peek(), self.kind()
        if kind == "number":
            return self.kind(-1) != "number" or self.peek(-2) == "^"  # two numbers side by side are no product
        if text == "|":
            return self.bars == 0 or self.peek(-1) in (r"\cdot",)
        return (
            kind in ("letters", "word")
            or text in _FENCES
            or (kind == "command" and (text in _NAMES or text in CONSTANTS or text[1:] in FUNCTIONS
                or text in (r"\frac", r"\sqrt", r"\binom", r"\angle", r"\triangle")
                or text.split("{")[0] in (*_DECORATED, r"\mathcal")))
        )  # fmt: skip

    def power(self) -> Expr:
        base = self.postfix(self.atom())
        if self.peek() == "^":
            self.take()
            if r"\circ" in (self.peek(), self.peek(self.peek() == "{")):
                self.at = closing(self.parts, self.at) + 1
                return self.postfix(Call("degrees", (base,)))
            base = self.postfix(Call("^", (base, self.script())))
            if self.peek() == "^":
                raise NoExpression("two exponents")
        return base

    def postfix(self, value: Expr) -> Expr:
        for _ in range(DEEPEST):
            if self.peek() not in ("!", "%"):
                break
            name = "percent" if self.take().text == "%" else "factorial"
            if name == "factorial" and self.peek() == "!":
                raise NoExpression("a double factorial")
            value = Call(name, (value,))
        return value

    def script(self) -> Expr:
        """An exponent or the argument of a root: a group, or a number whose digits run together."""
        if self.peek() in ("+", "-"):
            return self.signed(self.script)
        if self.peek() in ("{", "("):
            return self.group()
        return self.letter()

    def letter(self) -> Expr:
        """The first letter of a run, else an atom."""
        run = self.kind() in ("letters", "word") and len(self.peek()) > 1
        return _symbol(self.character()) if run else self.atom()

    def argument(self) -> Expr:
        """An argument as TeX reads it: a group, a command with its arguments, else one character."""
        if self.peek() == "{":
            return self.group()
        if self.kind() == "number" and len(self.peek()) > 1:
            if self.peek()[1] == ".":
                raise NoExpression(self.peek())
            return Number(Fraction(self.character()))
        return self.letter()

    def character(self) -> str:
        """The first character of a token, whose rest is read next."""
        token = self.take()
        if len(token.text) > 1:
            self.at -= 1
            self.parts = (*self.parts[: self.at], token._replace(text=token.text[1:]), *self.parts[self.at + 1 :])
        return token.text[0]

    def group(self) -> Expr:
        opening = self.take().text
        bars, self.bars = self.bars, 0
        value = self.sum()
        self.take(_FENCES[opening])
        self.bars = bars
        return value

    def text_of_group(self) -> str:
        """The text of an index, or of the letters under a bar, as it is written."""
        if self.peek() != "{":
            if self.kind() in ("number", "letters"):
                return self.character()
            token = self.take()
            return token.text if token.kind == "command" else token.text[0]
        end = closing(self.parts, self.at)
        inside = untokenize(self.parts[self.at + 1 : end])
        self.at = end + 1
        return inside

    def atom(self) -> Expr:
        self.depth += 1
        if self.depth > DEEPEST:
            raise Exhausted
        value = self.atom_here()
        self.depth -= 1
        return value

    def atom_here(self) -> Expr:
        text, kind = self.peek(), self.kind()
        if kind == "number":
            return self.number()
        if kind in ("letters", "word"):
            return self.letters()
        if text in _FENCES:
            value = self.group()
            return Call({r"\lfloor": "floor", r"\lceil": "ceil"}[text], (value,)) if text[0] == "\\" else value
        if text == "|":
            self.take()
            self.bars += 1
            value = self.sum()
            self.take("|")
            self.bars -= 1
            return Call("abs", (value,))
        if kind != "command":
            raise NoExpression(untokenize(self.parts))
        self.take()
        if text == r"\frac":
            return self.fraction()
        if text == r"\binom":
            return Call("binomial", (self.argument(), self.argument()))
        if text == r"\sqrt":
            return Call("root", (self.group() if self.peek() == "[" else Number(Fraction(2)), self.script()))
        if text[1:] in FUNCTIONS:
            return self.function(text[1:])
        if text in CONSTANTS:
            return Symbol(CONSTANTS[text])
        if text in _NAMES or text.startswith((r"\mathcal", r"\vec{")):
            return self.indexed(text, False)
        if text == r"\overline" and self.peek() == "{" and re.fullmatch("[A-Z]{2}", self.peek(1)):
            return self.group()
        if text in _DECORATED:
            under = self.text_of_group()
            basis = re.fullmatch(r"(?:\\vec\{)?([ijk])\}?", under) if text in (r"\hat", r"\vec") else None
            return self.indexed(rf"\vec{{{basis[1]}}}" if basis else f"{text}{{{under}}}", False)
        if text in (r"\angle", r"\triangle"):
            points = self.text_of_group() if self.peek() == "{" else self.take().text
            return Symbol(f"{text} {min(points, points[::-1])}")
        raise NoExpression(text)

    def number(self) -> Expr:
        token = self.take()
        if len(token.text) > _MAX_DIGITS:
            raise NoExpression("a number longer than any answer")
        value = _printed(token.text)
        written = token.text if "." in token.text else ""
        if not written and self.peek() == r"\frac" and self.kind(-2) != "number" and (mixed := self.mixed()):
            return Call("+", (Number(value), mixed))
        if not written and self.kind() == "number" and self.parts[self.at].spaced and self.peek(1) == "/":
            above, below = self.parts[self.at].text, self.peek(2)
            if self.kind(2) == "number" and above.isdigit() and below.isdigit() and int(above) < int(below):
                self.at += 3
                return Call("+", (Number(value), Number(Fraction(int(above), int(below)))))
        return Number(value, written)

    def mixed(self) -> Expr | None:
        start, parts, depth = self.at, self.parts, self.depth
        if start in self.unmixed:
            return None
        self.take(r"\frac")
        with contextlib.suppress(NoExpression):
            above, below = self.argument(), self.argument()
            if isinstance(above, Number) and isinstance(below, Number) and 0 < above.value < below.value:
                return Number(above.value / below.value)
        self.at, self.parts, self.depth = start, parts, depth
        self.unmixed.add(start)
        return None

    def fraction(self) -> Expr:
        middle = closing(self.parts, self.at)
        end = closing(self.parts, middle + 1)
        name = untokenize(self.parts[self.at : end + 1])
        if _DERIVATIVE.fullmatch(name):
            self.at = end + 1
            return Symbol(re.sub(r"\^\{(.)\}", r"^\1", name))
        above = self.argument()
        return Call("/", (above, self.argument()))

    def letters(self) -> Expr:
        """The first letter with its index, primes and argument; the rest of a run are further factors."""
        run = self.peek()
        if self.kind() == "word" and len(run) > 1:
            raise NoExpression(run)
        letter = self.character()
        return _symbol(letter) if len(run) > 1 else self.indexed(letter, True)

    def indexed(self, name: str, letter: bool) -> Expr:
        index = ""
        if self.peek() == "_":
            self.take()
            index = self.text_of_group()
            name += f"_{{{index}}}"
        primes = ""
        while self.peek() == "'":
            primes += self.take().text
        coming = texts_of(self.parts[self.at :])
        inverse = coming[:5] == ["^", "{", "-", "1", "}"]
        if name == "C" and coming[:1] == ["("] and "," in coming[: closing(self.parts, self.at) - self.at]:
            return Call("binomial", self.arguments())
        if re.fullmatch(r"C_\{\d+\}", name) and self.peek() == "^":
            self.take()
            return Call("binomial", (Number(Fraction(index)), self.script()))
        at_zero = coming[:3] == ["(", "0", ")"]  # nobody multiplies by 0
        if at_zero or (letter and name[0] in _APPLIED and (self.peek() == "(" or (inverse and self.peek(5) == "("))):
            if inverse:
                self.at += 5
            return Call(f"{name}{primes}{'^-1' * inverse}()", self.arguments())
        return _symbol(name + primes)

    def arguments(self, opening: str = "(", last: str = ")") -> tuple[Expr, ...]:
        self.take(opening)
        bars, self.bars = self.bars, 0
        items = [self.sum()]
        while self.peek() == ",":
            self.take()
            items.append(self.sum())
        self.take(last)
        self.bars = bars
        return tuple(items)

    def function(self, name: str) -> Expr:
        exponent: Expr | None = None
        base: tuple[Expr, ...] = ()
        for _ in range(2):
            if self.peek() == "^" and exponent is None:
                self.take()
                exponent = self.script()
            elif self.peek() == "_" and name == "log":
                self.take()
                base = (self.argument(),)
        if name in ("gcd", "lcm", "max", "min"):
            args = self.arguments() if self.peek() == "(" else self.arguments(r"\{", r"\}")
        elif self.peek() == "(":
            args = (self.postfix(self.group()),)
            if self.peek() == "^" and exponent is None:
                self.take()  # \sin(x)^2 is the square of the sine
                exponent = self.script()
        else:
            args = (self.atom() if self.peek() in ("{", "|") else self.bare_argument(),)
        value: Expr = Call(name, (*base, *args))
        if exponent is None:
            return value
        if exponent == Call("-", (Number(Fraction(1)),)):
            return Call("arc" + name, args) if name in INVERTIBLE else Call(f"{name}^-1()", args)
        return Call("^", (value, exponent))

    def bare_argument(self) -> Expr:
        """The argument of `\\sin` without parentheses: the factors up to a sign, a dot or another function."""
        if self.peek() in ("+", "-"):
            return self.signed(self.bare_argument)
        value = self.power()
        while self.begins_factor() and self.peek()[1:] not in FUNCTIONS and self.peek() not in ("(", "[", "|"):
            value = Call("*", (value, self.power()))
        if self.peek() == "/" and self.kind(1) == "number":
            self.take()
            value = Call("/", (value, self.power()))
        return value


def _joined(name: str, items: list[Expr]) -> Expr:
    """A sum or a product of the items, from the left; a long one in halves, so that its tree is not deep."""
    if len(items) > 16:
        return Call(name, (_joined(name, items[: len(items) // 2]), _joined(name, items[len(items) // 2 :])))
    return reduce(lambda one, other: Call(name, (one, other)), items)


def _printed(number: str) -> Fraction:
    """The value of a number; of a float's noise, as in 0.14400000000000002, what the program meant."""
    short = f"{float(number):.12g}" if 17 <= len(number) <= 24 and number == repr(float(number)) else ""
    return Fraction(short if short and len(short) <= 11 else number)


def _symbol(name: str) -> Symbol:
    return Symbol(CONSTANTS.get(name, name))
