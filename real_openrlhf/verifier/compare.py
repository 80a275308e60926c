"""Whether two answers are equal: one method for each kind of answer, in the order in which kinds are tried."""

from collections import Counter
from fractions import Fraction

from real_openrlhf.verifier import arithmetic, equality, process
from real_openrlhf.verifier.arithmetic import ROUNDED_DIGITS, NoValue, Undecided
from real_openrlhf.verifier.names import base_name, chosen, in_letters_of, same_name
from real_openrlhf.verifier.reading.grammar import expression
from real_openrlhf.verifier.reading.tex import clean, plain, tokens
from real_openrlhf.verifier.reading.tree import (
    INFINITY,
    Answer,
    Based,
    Bounded,
    Call,
    Choice,
    Conditioned,
    Either,
    Expr,
    Group,
    Named,
    Number,
    Quantity,
    Ratio,
    Relation,
    Row,
    Symbol,
    Text,
    core,
    letters_of,
)
from real_openrlhf.verifier.reading.tree import Unreadable as NoExpression
from real_openrlhf.verifier.reading.units import Unit
from real_openrlhf.verifier.reading.whole import read

_APPROXIMATE_DIGITS = 2  # significant digits that a decimal after `\approx` needs, as in `\sqrt{2} \approx 1.4`
_PERCENT, _DEGREES = (("%", 1),), (("deg", 1),)


class Unreadable(process.Undecided):
    """The gold is no mathematics that can be read, and the answer is not the same text."""

    reason = "gold_unparsed"


class TooLarge(process.Undecided):
    """The answer has a number with more digits than any gold, such as a tower of powers."""

    reason = "too_large"


def same(gold: str, answer: str, digits: bool = False, written: bool = False) -> bool:
    """Whether two texts say the same; without `digits` raises Undecided where exact arithmetic cannot tell.

    `written` asks whether they say it in the same form: no number or formula is worked out.
    """
    if plain(tokens(clean(gold))) == plain(tokens(clean(answer))):
        return True  # the same text in other fonts
    wanted = read(gold)
    try:
        return _Comparison(digits, written=written).equal(wanted, read(answer))
    except RecursionError:  # hundreds of terms or brackets: no gold has them
        return False
    except arithmetic.TooLarge as error:
        raise TooLarge from error


def form(expr: Expr) -> str:
    """An expression as text, in one order of its terms and factors."""
    if not isinstance(expr, Call):
        return str(expr.value if isinstance(expr, Number) else expr.name)
    args = [form(arg) for arg in expr.args]
    return f"{expr.name}({','.join(sorted(args) if expr.name in ('+', '*') else args)})"


def form_of(answer: Answer) -> str:
    """An answer of any kind as text."""
    return form(answer.value) if isinstance(answer, Quantity) else str(answer)


def unread(gold: str, answer: str) -> bool:
    """Whether an answer was taken for words although it has all digits and letters of a gold that is none."""
    said, wanted = (Counter(_digits_and_letters(text)) for text in (answer, gold))
    return not wanted - said and _has_words(read(answer)) and not _has_words(read(gold))


def _digits_and_letters(text: str) -> list[str]:
    found = [[token.text] if token.kind in ("number", "command") else [*token.text] for token in tokens(text)]
    return [one for piece in found for one in piece if one[-1].isalnum()]


def _has_words(answer: Answer) -> bool:
    if isinstance(answer, Group | Row):
        return any(map(_has_words, answer.items))
    if isinstance(answer, Relation):
        return any(map(_has_words, answer.sides))
    value = core(answer)
    return isinstance(value, Text) if value == answer else _has_words(value)


class _Comparison:
    def __init__(self, digits: bool, rounded: int = ROUNDED_DIGITS, written: bool = False):
        self.digits, self.rounded, self.written = digits, rounded, written

    def equal(self, gold: Answer, answer: Answer) -> bool:
        if gold == answer:
            return True
        if isinstance(gold, Conditioned) or isinstance(answer, Conditioned):
            return self._unlabelled(gold, answer, Conditioned)
        if isinstance(gold, Either) or isinstance(answer, Either):
            return any(self.equal(one, other) for one in self._forms(gold) for other in self._forms(answer))
        if isinstance(gold, Choice) or isinstance(answer, Choice):
            return self._choice(gold, answer)
        if isinstance(gold, Named) or isinstance(answer, Named):
            return self._named(gold, answer)
        if isinstance(gold, Bounded) or isinstance(answer, Bounded):
            return self._unlabelled(gold, answer, Bounded)
        if isinstance(gold, Based) or isinstance(answer, Based):
            return self._based(gold, answer)
        if isinstance(gold, Ratio) or isinstance(answer, Ratio):
            return self._ratio(gold, answer)
        if isinstance(gold, Row) and isinstance(answer, Row):
            return self._rows(gold, answer)
        if isinstance(gold, Group) and isinstance(answer, Group):
            return self._groups(gold.items, answer.items)
        if isinstance(gold, Group | Row) and isinstance(answer, Group | Row):
            # A tuple written without its parentheses, or a list written with them.
            loose = [side.brackets == "()" if isinstance(side, Row) else not side.braced for side in (gold, answer)]
            return all(loose) and self._in_order(gold.items, answer.items)
        if isinstance(gold, Relation) and isinstance(answer, Relation):
            return self._relations(gold, answer)
        if isinstance(gold, Quantity) and isinstance(answer, Relation) and answer.sign == "=":
            if letters_of(gold.value):
                return all(self.equal(gold, side) for side in answer.sides)  # (x-3)(x+3) = x^2-9
            last = answer.sides[1]  # x + y = 5 for 5
            return isinstance(last, Quantity) and not letters_of(last.value) and self.equal(gold, last)
        if isinstance(gold, Quantity) and isinstance(answer, Group) and answer.alternatives:
            return all(self.equal(gold, item) for item in answer.items)  # \frac{\sqrt{2}}{2} or 1/\sqrt{2}
        if isinstance(gold, Quantity) and isinstance(answer, Quantity):
            return self._quantities(gold, answer)
        if (letters := _chosen(gold) or _chosen(answer)) and not (_chosen(gold) and _chosen(answer)):
            return self.equal(*(read(letters) if _chosen(side) else side for side in (gold, answer)))
        for text, other in ((gold, answer), (answer, gold)):
            if isinstance(text, Text) and isinstance(other, Quantity) and isinstance(other.value, Symbol):
                _, angle, points = other.value.name.lower().rpartition(r"\angle ")
                if angle and text.text in (points, points[::-1]):
                    return True
        if isinstance(gold, Text) and not gold.readable:
            raise Unreadable(gold.text)
        return False

    def _forms(self, either: Answer) -> list[Answer]:
        """The exact form, and the other forms that equal it or are a rounding of it."""
        if not isinstance(either, Either):
            return [either]
        exact, *others = either.forms
        rough = _Comparison(self.digits, _APPROXIMATE_DIGITS)
        return [
            exact,
            *(one for one in others if self.equal(exact, one) or (_is_decimal(one) and rough.equal(exact, one))),
        ]

    def _unlabelled(self, gold: Answer, answer: Answer, kind: type[Conditioned | Bounded]) -> bool:
        """Labels of a kind may be left out, not changed."""
        labels = {side.label for side in (gold, answer) if isinstance(side, kind)}
        values = (side.value if isinstance(side, kind) else side for side in (gold, answer))
        return len(labels) == 1 and self.equal(*values)

    def _choice(self, gold: Answer, answer: Answer) -> bool:
        if isinstance(gold, Choice) and isinstance(answer, Choice):
            if gold.letter != answer.letter:
                return False
            return gold.value is None or answer.value is None or self.equal(gold.value, answer.value)
        choice, other = (gold, answer) if isinstance(gold, Choice) else (answer, gold)
        assert isinstance(choice, Choice)
        if choice.value is not None:
            return self.equal(choice.value, other)
        letter = Quantity(Symbol(choice.letter))
        sides = (letter, other) if choice is gold else (other, letter)
        return isinstance(other, Quantity | Named | Relation) and self.equal(*sides)

    def _named(self, gold: Answer, answer: Answer) -> bool:
        if isinstance(gold, Named) and isinstance(answer, Named):
            if same_name(gold, answer):
                return self.equal(gold.value, answer.value)
            sides = _as_equation(gold), _as_equation(answer)
            if all(side is not None and len(letters_of(side)) > 1 for side in sides):
                return self._proportional(*sides) is not None
            return False
        if isinstance(gold, Relation) or isinstance(answer, Relation):
            unequal = any(isinstance(side, Relation) and side.sign != "=" for side in (gold, answer))
            if unequal or not isinstance(gold, Named | Relation):
                return False
            return self._proportional(_as_equation(gold), _as_equation(answer)) is not None
        values = [chosen(side.value, side) if isinstance(side, Named) else side for side in (gold, answer)]
        return self.equal(*values)

    def _based(self, gold: Answer, answer: Answer) -> bool:
        if isinstance(gold, Based) and isinstance(answer, Based):
            return gold.base == answer.base and gold.digits.lstrip("0") == answer.digits.lstrip("0")
        based, other = (gold, answer) if isinstance(gold, Based) else (answer, gold)
        if not isinstance(other, Quantity) or not isinstance(based, Based) or other.unit is not None:
            return False
        digits = based.digits.removeprefix("-")
        written = Number(Fraction(digits)) if digits.replace(".", "").isdigit() else None
        return written is not None and form(other.value) == form(
            written if digits == based.digits else Call("-", (written,))
        )

    def _ratio(self, gold: Answer, answer: Answer) -> bool:
        if isinstance(gold, Ratio) and isinstance(answer, Ratio):
            if gold.time and answer.time:
                return _clock(gold, answer) == _clock(answer, gold) and len({gold.half, answer.half} - {""}) < 2
            if gold.half or answer.half or len(gold.parts) != len(answer.parts):
                return False
            return all(
                self._same(Call("*", (a, d)), Call("*", (b, c)))
                for a, b, c, d in zip(gold.parts, gold.parts[1:], answer.parts, answer.parts[1:], strict=False)
            )
        ratio, other = (gold, answer) if isinstance(gold, Ratio) else (answer, gold)
        if not isinstance(ratio, Ratio) or ratio.half or len(ratio.parts) != 2 or not isinstance(other, Quantity):
            return False
        return other.unit is None and self._same(other.value, Call("/", ratio.parts))

    def _rows(self, gold: Row, answer: Row) -> bool:
        brackets = {gold.brackets, answer.brackets}
        if len(brackets) == 2 and not (brackets & {"column", "row"} and brackets & {"()", "[]"}):
            return False
        return self._in_order(gold.items, answer.items)

    def _in_order(self, gold: tuple[Answer, ...], answer: tuple[Answer, ...]) -> bool:
        return len(gold) == len(answer) and all(map(self.equal, gold, answer))

    def _groups(self, gold: tuple[Answer, ...], answer: tuple[Answer, ...]) -> bool:
        """In any order, each item as often as it occurs; if one side alone has several names, in the gold's order."""
        if len(gold) != len(answer):
            return False
        named = [all(isinstance(item, Named) for item in items) for items in (gold, answer)]
        several = [len({base_name(item) for item in items}) > 1 for items in (gold, answer)]
        if named[0] != named[1] and several[named.index(True)]:
            return self._in_order(gold, answer)
        rest = list(answer)
        for wanted in gold:
            # An identical item first: it saves comparisons, and another pair might raise Undecided.
            rest.sort(key=lambda item: item != wanted)
            found = next((item for item in rest if self.equal(wanted, item)), None)
            if found is None:
                return False
            rest.remove(found)
        return True

    def _relations(self, gold: Relation, answer: Relation) -> bool:
        upward = {r"\ge": r"\le", ">": "<"}
        if upward.get(gold.sign, gold.sign) != upward.get(answer.sign, answer.sign):
            return False
        if self._in_order(gold.sides, answer.sides) and gold.sign == answer.sign:
            return True
        sides = _as_equation(gold), _as_equation(answer)
        if sides[0] is None or sides[1] is None:
            if sides[0] is None and not isinstance(gold.sides[1], Text):
                raise Unreadable("a relation whose sides cannot be subtracted")
            return False
        if gold.sign not in ("=", r"\le", "<", r"\ge", ">", r"\ne"):
            return False
        factor = self._proportional(*sides)
        return factor is not None and (gold.sign in ("=", r"\ne") or factor > 0)

    def _proportional(self, gold: Expr | None, answer: Expr | None) -> int | None:
        if gold is None or answer is None or self.written or letters_of(gold) != letters_of(answer):
            return None
        if not self.digits:
            raise Undecided
        factor = equality.proportional(gold, answer)
        return None if factor is None else int(factor)

    def _quantities(self, gold: Quantity, answer: Quantity) -> bool:
        one, other = gold.unit, answer.unit
        if one is not None and other is not None:
            factor = _conversion(one, other)
            if factor is None:
                return False
            value = answer.value if factor == 1 else Call("*", (answer.value, Number(factor)))
            return self._same(gold.value, value)
        if self._same(gold.value, answer.value):
            return True
        dimensions = [(unit or Unit()).dimensions for unit in (one, other)]
        if _DEGREES in dimensions:  # 30^\circ + 45^\circ has its unit in the expression
            given = [side.value if side.unit is None else Call("degrees", (side.value,)) for side in (gold, answer)]
            return any("degrees" in str(value.value) for value in (gold, answer)) and self._same(*given)
        if dimensions[0] == _PERCENT:  # `62.5%` is also 0.625; without a sign 62.5 is only 62.5
            return self._same(Call("percent", (gold.value,)), answer.value)
        if dimensions[1] == _PERCENT:
            return self._same(gold.value, Call("percent", (answer.value,)))
        return False

    def _same(self, gold: Expr, answer: Expr) -> bool:
        if gold == answer or self.written:
            return form(gold) == form(answer)
        if INFINITY in (_unsigned(gold), _unsigned(answer)):
            return False
        if isinstance(gold, Call) and isinstance(answer, Call) and gold.name == answer.name == "mod":
            apart = Call("/", (Call("+", (gold.args[0], Call("-", (answer.args[0],)))), gold.args[1]))
            return self._same(gold.args[1], answer.args[1]) and _is_whole(apart)
        try:
            return equality.same_value(gold, in_letters_of(gold, answer), self.rounded, self.digits)
        except NoValue:
            return False


def _chosen(answer: Answer) -> str:
    """`B, C, D` as one word; an empty text for what is no list of choices."""
    items = answer.items if isinstance(answer, Group) else ()
    letters = [item.letter for item in items if isinstance(item, Choice) and item.value is None]
    return "".join(sorted(letters)) if len(letters) == len(items) else ""


def _is_whole(expr: Expr) -> bool:
    try:
        return arithmetic.exact(expr).denominator == 1
    except arithmetic.NoFraction:
        return False


def _unsigned(expr: Expr) -> Expr:
    return expr.args[0] if isinstance(expr, Call) and expr.name == "-" else expr


def _conversion(gold: Unit, answer: Unit) -> Fraction | None:
    """The factor from the answer's unit to the gold's; None for another quantity. Counted things are ignored."""
    if gold.words or answer.words:
        known = gold.dimensions or answer.dimensions
        return None if known else Fraction(1)
    temperatures = {(("deg", 1),), (("degC", 1),), (("degF", 1),)}
    if gold.dimensions != answer.dimensions:
        both = {gold.dimensions, answer.dimensions}
        return Fraction(1) if both <= temperatures and (("deg", 1),) in both else None
    return answer.factor / gold.factor


def _clock(time: Ratio, beside: Ratio) -> tuple[int, ...]:
    """The time on a 24-hour clock; as written if only `time` has a.m. or p.m., because `beside` may mean either."""
    hour, *rest = time.time
    if time.half and not beside.half and 1 <= beside.time[0] <= 12:
        return time.time
    return (hour % 12 + 12 * (time.half == "p") if time.half else hour, *rest)


def _is_decimal(form: Answer) -> bool:
    return isinstance(form, Quantity) and arithmetic.decimal_digits(form.value) is not None


def _as_equation(side: Answer) -> Expr | None:
    """The left side minus the right side of an equation; None for what cannot be subtracted."""
    if isinstance(side, Named):
        try:
            name: Expr | None = expression(side.name)
        except NoExpression:
            name = None
        value = _expr_of(side.value)
    elif isinstance(side, Relation):
        name, value = _expr_of(side.sides[0]), _expr_of(side.sides[1])
        if side.sign in (r"\ge", ">"):
            name, value = value, name
    else:
        return None
    return None if name is None or value is None else Call("+", (name, Call("-", (value,))))


def _expr_of(side: Answer) -> Expr | None:
    if isinstance(side, Choice) and side.value is None:
        return Symbol(side.letter)
    return side.value if isinstance(side, Quantity) and side.unit is None else None
