"""Whether two answers are equal: their labels agree, and their values are equal."""

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import pairwise

from same_answer import arithmetic
from same_answer.arithmetic import ROUNDED_DIGITS, NeedsDigits, NoValue
from same_answer.process import NoVerdict
from same_answer.reading.answer_parser import parse_answer
from same_answer.reading.budget import COMPARING, Exhausted
from same_answer.reading.cutting import is_name_row, split, trimmed
from same_answer.reading.grammar import expression
from same_answer.reading.tex import Tokens, clean, tokens, untokenize
from same_answer.reading.tree import (
    INFINITY,
    Answer,
    Call,
    Either,
    Expr,
    Group,
    NoExpression,
    Number,
    Ratio,
    Relation,
    Row,
    Symbol,
    Text,
    form,
    form_of,
    letters_of,
    names_of,
    parts,
    quantity,
)
from same_answer.reading.units import Dimensions, Unit
from same_answer.reading.words import OPPOSITES, ORDERED_SHAPES, SHAPES

_APPROXIMATE_DIGITS = 2  # significant digits that a decimal after `\approx` needs, as in `\sqrt{2} \approx 1.4`
_OPERATIONS: dict[Dimensions, str] = {(("%", 1),): "percent", (("deg", 1),): "degrees"}
_DEGREES, _RADIANS = Unit(dimensions=(("deg", 1),)), Unit(dimensions=(("rad", 1),))
_UNIT_VECTORS = (r"\vec{i}", r"\vec{j}", r"\vec{k}")
_DECORATION = str.maketrans("", "", "|{}[]() ")


def same(gold: str, answer: str, digits: bool = False, written: bool = False) -> bool:
    """Whether two texts say the same; without `digits` raises NeedsDigits where exact arithmetic cannot tell.

    `written` asks whether they say it in the same form: no number or formula is worked out. Raises NoVerdict if the
    gold cannot be read, or if a number has more digits than any gold.
    """
    sides = tokens(clean(gold)), tokens(clean(answer))
    if len({*map(untokenize, sides)}) == 1:
        return True  # the same text in other fonts
    if _contradict(*map(_meanings, sides)):
        return False
    try:
        wanted = parse_answer(gold)
    except Exhausted as error:
        raise NoVerdict("gold_unparsed", "too large to read") from error
    try:
        return _Comparison(digits, written=written).equal(wanted, parse_answer(answer))
    except arithmetic.GoldTooLarge as error:
        raise NoVerdict("gold_unparsed", "too large to compare") from error
    except (arithmetic.TooLarge, Exhausted) as error:
        raise NoVerdict("too_large") from error


def with_itself(gold: str) -> None:
    """Compare each formula of a gold with itself, worked out as that of an answer."""
    for expr in _formulas(parse_answer(gold)):
        arithmetic.same_value(Call("+", (expr, Number(Fraction()))), expr, digits=True)


def _formulas(answer: Answer) -> list[Expr]:
    value = answer.value
    if isinstance(value, Either):
        return [one for form in value.forms for one in _formulas(form)]
    if isinstance(value, Group | Row | Relation):
        return [
            one for item in (value.sides if isinstance(value, Relation) else value.items) for one in _formulas(item)
        ]
    return [*value.parts] if isinstance(value, Ratio) else [] if isinstance(value, Text) else [value]


def unread(gold: str, answer: str) -> bool:
    """Whether an answer was taken for words although it has all digits and letters of a gold that is none."""
    given, wanted = (Counter(_digits_and_letters(text)) for text in (answer, gold))
    return not wanted - given and has_words(parse_answer(answer)) and not has_words(parse_answer(gold))


def _digits_and_letters(text: str) -> list[str]:
    pieces = [[token.text] if token.kind in ("number", "command") else [*token.text] for token in tokens(text)]
    return [one for piece in pieces for one in piece if one[-1].isalnum()]


def has_words(answer: Answer) -> bool:
    value = answer.value
    if isinstance(value, Group | Row):
        return any(map(has_words, value.items))
    if isinstance(value, Relation):
        return any(map(has_words, value.sides))
    return isinstance(value, Text) and not answer.base


class _Comparison:
    def __init__(self, digits: bool, rounded: int = ROUNDED_DIGITS, written: bool = False):
        self.digits, self.rounded, self.written = digits, rounded, written

    @COMPARING.of
    def equal(self, gold: Answer, answer: Answer) -> bool:
        if gold == answer:
            return True
        if isinstance(gold.value, Either) or isinstance(answer.value, Either):
            given = self._forms(answer)
            if isinstance(answer.value, Either):
                doubted = answer.value.all_hold and len(given) < len(answer.value.forms)
                if doubted or self._contradictory(given[0], answer.value.forms):
                    return False
            return any(self.equal(one, other) for one in self._forms(gold) for other in given)
        if residues := _residues(gold, answer):
            return self._values(*residues)
        answer = _in_parameter_of(gold, answer)
        if not _agree(gold, answer):
            return False
        rows = _by_name(gold), _by_name(answer)
        if all(rows):
            return self._groups(*rows)
        if isinstance(answer.value, Row) and {untokenize(item.name) for item in rows[1]} <= {*"xyz"}:
            answer = replace(answer, value=replace(answer.value, items=_by_letter(rows[1]) or answer.value.items))
        if gold.name and answer.name:
            if _same_name(gold.name, answer.name):
                return self._values(gold, answer)
            # `y = 2x` and `x = y/2`, but not `y = 2` and `x = 2`
            sides = _as_equation(gold), _as_equation(answer)
            return all(side and len(letters_of(side)) > 1 for side in sides) and self._proportional(*sides) is not None
        if gold.name or answer.name:
            other = answer.value if gold.name else gold.value
            if isinstance(other, Relation):
                return other.sign == "=" and self._proportional(_as_equation(gold), _as_equation(answer)) is not None
            gold, answer = _as_number(gold), _as_number(answer)
        return self._values(gold, answer)

    def _forms(self, answer: Answer) -> list[Answer]:
        """The exact form, and the other forms that equal it or are a rounding of it."""
        if not isinstance(answer.value, Either):
            return [answer]
        exact, *others = answer.value.forms
        rough = _Comparison(self.digits, _APPROXIMATE_DIGITS)
        return [
            exact,
            *(one for one in others if self._told(exact, one) or (_is_decimal(one) and rough._told(exact, one))),
        ]

    def _told(self, one: Answer, other: Answer) -> bool:
        """Whether two forms of one side are equal; where that cannot be told, it says nothing about the gold."""
        try:
            return self.equal(one, other)
        except NoVerdict:
            return False

    def _contradictory(self, first: Answer, forms: tuple[Answer, ...]) -> bool:
        """Whether a number is said to be another one, as in `4 \\approx 5`."""
        if isinstance(first.value, Row):
            rough = _Comparison(self.digits, _APPROXIMATE_DIGITS)
            return any(isinstance(form.value, Row) and not rough._told(first, form) for form in forms)
        alike = [form for form in (first, *forms) if form.unit == first.unit and quantity(form)]
        numbers = [expr for form in alike if (expr := quantity(form)) and not letters_of(expr)]
        if numbers[:1] != [first.value]:
            return False
        try:
            return any(arithmetic.differ(numbers[0], other, self.digits) for other in numbers)
        except NoValue:
            return False

    def _values(self, gold: Answer, answer: Answer) -> bool:
        """Whether the values are equal, in their units and bases; other labels are left out."""
        if gold.letter and answer.letter and (_is_letter(gold) or _is_letter(answer)):
            return True
        one, other = gold.value, answer.value
        if gold.base or answer.base:  # digits as they are written
            return not (gold.unit or answer.unit) and form_of(Answer(one)) == form_of(Answer(other))
        if isinstance(one, Expr) and isinstance(other, Expr):
            return self._quantities(one, gold.unit, other, answer.unit)
        gold, answer = Answer(one, unit=gold.unit), Answer(other, unit=answer.unit)
        if isinstance(one, Ratio) or isinstance(other, Ratio):
            return self._ratio(gold, answer)
        if isinstance(one, Row) and isinstance(other, Row):
            shapes = {one.brackets, other.brackets}
            matrix = bool(shapes & {"column", "row"} and shapes & {"()", "[]"})  # of one row or column, as a tuple
            return (len(shapes) == 1 or matrix) and self._in_order(one.items, other.items)
        if isinstance(one, Group) and isinstance(other, Group):
            if {one.sign, other.sign} == {r"\cup", ","}:
                return False  # intervals and points
            return self._groups(one.items, other.items)
        if isinstance(one, Group | Row) and isinstance(other, Group | Row):
            # A tuple written without its parentheses, or a list written with them; a column of named values.
            named = _by_name(gold) or _by_name(answer)
            loose = [
                side.brackets in ("()", "column" if named else "()") if isinstance(side, Row) else not side.braced
                for side in (one, other)
            ]
            return all(loose) and self._in_order(one.items, _by_letter(other.items))
        if isinstance(one, Relation) and isinstance(other, Relation):
            return self._relations(one, other)
        if isinstance(one, Expr) and isinstance(other, Relation) and other.sign == "=":
            if letters_of(one):
                return all(self.equal(gold, side) for side in other.sides)  # (x-3)(x+3) = x^2-9
            left, last = map(quantity, other.sides)  # x + y = 5 for 5, but not 2x = 5
            if left is None or last is None or letters_of(last) or not _is_named(left):
                return False
            return self.equal(gold, other.sides[1])
        for whole, bare in ((one, other), (other, one)):
            if isinstance(whole, Row) and whole.brackets in ("()", "column") and isinstance(bare, Expr):
                return self._components(whole, bare)
            if isinstance(whole, Relation) and isinstance(bare, Call) and bare.name == "mod":
                residue = whole.sign == r"\equiv" and isinstance(whole.sides[0].value, Symbol)
                return residue and self.equal(whole.sides[1], Answer(bare))
        if isinstance(one, Expr) and isinstance(other, Group) and other.alternatives:
            return all(self.equal(gold, item) for item in other.items)  # \frac{\sqrt{2}}{2} or 1/\sqrt{2}
        if (letters := _chosen(gold) or _chosen(answer)) and not (_chosen(gold) and _chosen(answer)):
            return self.equal(*(parse_answer(letters) if _chosen(side) else side for side in (gold, answer)))
        for text, beside in ((one, other), (other, one)):
            if isinstance(text, Text) and isinstance(beside, Symbol):
                _, angle, points = beside.name.lower().rpartition(r"\angle ")
                if angle and text.text in (points, points[::-1]):
                    return True
        if isinstance(one, Text) and one != other and not one.readable:
            raise NoVerdict("gold_unparsed", one.text)
        return one == other

    def _components(self, row: Row, total: Expr) -> bool:
        """Whether a vector is this sum: `(2,-1)` and `2\\mathbf{i} - \\mathbf{j}`."""
        values = [*map(quantity, row.items)]
        if None in values or len(values) > 3 or not letters_of(total) & {*_UNIT_VECTORS}:
            return False
        terms = (Call("*", (value, Symbol(name))) for value, name in zip(values, _UNIT_VECTORS, strict=False) if value)
        return self._same(reduce(lambda one, other: Call("+", (one, other)), terms), total)

    def _ratio(self, gold: Answer, answer: Answer) -> bool:
        one, other = gold.value, answer.value
        if isinstance(one, Ratio) and isinstance(other, Ratio):
            if one.time and other.time:
                return _clock(one, other) == _clock(other, one) and len({one.half, other.half} - {""}) < 2
            if one.half or other.half or len(one.parts) != len(other.parts):
                return False
            return all(
                self._same(Call("*", (a, d)), Call("*", (b, c)))
                for a, b, c, d in zip(one.parts, one.parts[1:], other.parts, other.parts[1:], strict=False)
            )
        ratio, quotient = (one, answer) if isinstance(one, Ratio) else (other, gold)
        if not isinstance(ratio, Ratio) or ratio.half or len(ratio.parts) != 2 or quotient.unit:
            return False
        return isinstance(quotient.value, Expr) and self._same(quotient.value, Call("/", ratio.parts))

    def _in_order(self, gold: tuple[Answer, ...], answer: tuple[Answer, ...]) -> bool:
        return len(gold) == len(answer) and all(map(self.equal, gold, answer))

    def _groups(self, gold: tuple[Answer, ...], answer: tuple[Answer, ...]) -> bool:
        """In any order, each item as often as it occurs; if one side alone has several names, in the gold's order.

        An answer's names say their own order: `y = 4, x = 3` is `3, 4`.
        """
        if len(gold) != len(answer):
            return False
        named = [all(item.name for item in items) for items in (gold, answer)]
        bases = [{untokenize(item.name).partition("_")[0] for item in items} for items in (gold, answer)]
        if named[0] != named[1] and len(bases[named.index(True)]) > 1:
            return self._in_order(gold, _by_letter(answer))
        words = [[*map(_words_of, items)] for items in (gold, answer)]
        counted = len({*words[0]}) > 1 and sorted(words[0]) == sorted(words[1])  # 5 apples, 3 pears
        rest = list(answer)
        for wanted in gold:
            # An identical item first: it saves comparisons, and another pair might raise NeedsDigits.
            rest.sort(key=lambda item: item != wanted)
            alike = (item for item in rest if not counted or _words_of(item) == _words_of(wanted))
            match = next((item for item in alike if self.equal(wanted, item)), None)
            if match is None:
                return False
            rest.remove(match)
        return True

    def _relations(self, gold: Relation, answer: Relation) -> bool:
        upward = {r"\ge": r"\le", ">": "<"}
        if upward.get(gold.sign, gold.sign) != upward.get(answer.sign, answer.sign):
            return False
        if self._in_order(gold.sides, answer.sides) and gold.sign == answer.sign:
            return True
        sides = _as_equation(Answer(gold)), _as_equation(Answer(answer))
        if sides[0] is None and not isinstance(gold.sides[1].value, Text):
            raise NoVerdict("gold_unparsed", "a relation whose sides cannot be subtracted")
        if gold.sign not in ("=", r"\le", "<", r"\ge", ">", r"\ne"):
            return False
        factor = self._proportional(*sides)
        return factor is not None and (gold.sign in ("=", r"\ne") or factor > 0)

    def _proportional(self, gold: Expr | None, answer: Expr | None) -> int | None:
        if gold is None or answer is None or self.written or letters_of(gold) != letters_of(answer):
            return None
        if not self.digits:
            raise NeedsDigits
        return arithmetic.proportional(gold, answer)

    def _quantities(self, gold: Expr, gold_unit: Unit | None, answer: Expr, unit: Unit | None) -> bool:
        if _size(gold, gold_unit) or _size(answer, unit):
            ordered = any(one and {*one.words.split()} & ORDERED_SHAPES for one in (gold_unit, unit))
            return gold == answer if ordered else form(gold) == form(answer)
        if gold_unit and unit and {gold_unit, unit} == {_DEGREES, _RADIANS}:
            gold, answer = (Call("degrees", (one,)) if of == _DEGREES else one
                            for one, of in ((gold, gold_unit), (answer, unit)))  # fmt: skip
            return self._same(gold, answer)
        if gold_unit and unit:
            factor = _conversion(gold_unit, unit)
            if factor is None:
                return False
            return self._same(gold, answer if factor == 1 else Call("*", (answer, Number(factor))))
        # One has a unit that is also an operation. `62.5%` is 0.625; without a sign 62.5 is only 62.5.
        name = _OPERATIONS.get((gold_unit or unit or Unit()).dimensions, "")
        radians = name == "degrees" and "pi" in names_of(answer if gold_unit else gold, Symbol)
        small = name == "percent" and not gold_unit and 0 < abs(_fraction(gold) or Fraction()) < 1
        if not (radians or small) and self._same(gold, answer):  # 0.4% is not 0.4, as 40% is 40
            return True
        worked_out = "degrees" in names_of(gold, Call) | names_of(answer, Call)  # 30^\circ + 45^\circ
        if not name or (name == "degrees" and not radians and not worked_out):
            return False
        return self._same(Call(name, (gold,)) if gold_unit else gold, Call(name, (answer,)) if unit else answer)

    def _same(self, gold: Expr, answer: Expr) -> bool:
        if gold == answer or self.written:
            return form(gold) == form(answer)
        if INFINITY in (_unsigned(gold), _unsigned(answer)):
            return False
        if isinstance(gold, Call) and isinstance(answer, Call) and gold.name == answer.name == "mod":
            apart = Call("/", (Call("+", (gold.args[0], Call("-", (answer.args[0],)))), gold.args[1]))
            times = _fraction(apart)
            return self._same(gold.args[1], answer.args[1]) and times is not None and times.denominator == 1
        try:
            return arithmetic.same_value(gold, _in_letters_of(gold, answer), self.rounded, self.digits)
        except NoValue:
            return False


def _size(expr: Expr, unit: Unit | None) -> bool:
    """Whether this is `3 \\times 2 \\text{ matrix}`, which is no product."""
    words = unit.words.split() if unit else []
    return isinstance(expr, Call) and expr.name == "*" and not letters_of(expr) and bool({*words} & SHAPES)


def _agree(gold: Answer, answer: Answer) -> bool:
    """Whether no label was changed. Names have more spellings, and values depend on units: they come later."""
    labels = [(gold.letter, answer.letter), (gold.bounds, answer.bounds), (gold.base, answer.base)]
    pairs = (*labels, *zip(gold.condition, answer.condition, strict=False))
    return all(one == other or not one or not other for one, other in pairs)


def _by_name(answer: Answer) -> tuple[Answer, ...]:
    """The named values of `x = 1, y = 2` and of `(x, y) = (1, 2)`; none for another answer."""
    value = answer.value
    if isinstance(value, Group) and all(item.name for item in value.items):
        return value.items
    names = [*map(trimmed, split(answer.name[1:-1], ","))] if is_name_row(answer.name) else []
    if not isinstance(value, Row) or len(names) != len(value.items):
        return ()
    return tuple(replace(item, name=name) for name, item in zip(names, value.items, strict=True))


def _words_of(item: Answer) -> str:
    return item.unit.words if item.unit else ""


def _residues(gold: Answer, answer: Answer) -> tuple[Answer, Answer] | None:
    """Both as congruences, if one is `x \\equiv 2 \\pmod 5` and the other `x = 5k + 2` for whole k."""
    if isinstance(gold.value, Relation):
        found = _as_congruence(answer, gold.value)
        return (gold, found) if found else None
    if isinstance(answer.value, Relation):
        found = _as_congruence(gold, answer.value)
        return (found, answer) if found else None
    return None


def _as_congruence(line: Answer, beside: Relation) -> Answer | None:
    letter, whole = beside.sides[0].value, [text[0] for text in line.condition if re.fullmatch("[a-z] whole", text)]
    named = not line.name or (isinstance(letter, Symbol) and untokenize(line.name) == letter.name)
    if beside.sign != r"\equiv" or not named or not isinstance(line.value, Expr) or letters_of(line.value) != {*whole}:
        return None
    if len(whole) != 1:
        return None
    found = (_fraction(_at(line.value, whole[0], at)) for at in range(3))
    values = [value for value in found if value is not None]
    steps = {after - before for before, after in pairwise(values)}
    if len(values) < 3 or len(steps) > 1 or steps == {0}:
        return None
    residue = Call("mod", (Number(values[0]), Number(abs(steps.pop()))))
    return Answer(Relation(r"\equiv", (beside.sides[0], Answer(residue))))


def _at(expr: Expr, letter: str, value: int) -> Expr:
    if isinstance(expr, Call):
        return Call(expr.name, tuple(_at(arg, letter, value) for arg in expr.args))
    return Number(Fraction(value)) if expr == Symbol(letter) else expr


def _is_named(expr: Expr) -> bool:
    """`x + y`, `f(-1)`, `|z|` and `|\\vec{a}|`, but not the left side of an equation: `2x`, `x^2`, `|x|`."""
    if isinstance(expr, Call) and expr.name == "abs" and isinstance(expr.args[0], Symbol):
        return expr.args[0].name in ("z", "w") or expr.args[0].name.startswith("\\")
    if isinstance(expr, Call) and (expr.name.endswith("()") or expr.name == "det"):
        return True
    return len(letters_of(expr)) > 1 and not _numbers_in(expr)


def _numbers_in(expr: Expr) -> bool:
    return isinstance(expr, Number) or isinstance(expr, Call) and any(map(_numbers_in, expr.args))


def _meanings(text: Tokens) -> dict[int, set[int]]:
    """For each line of opposites the meanings that the words of a text have."""
    found: dict[int, set[int]] = {}
    for token in text:
        line, meaning = OPPOSITES.get(token.text.lower(), (-1, 0)) if token.kind in ("word", "letters") else (-1, 0)
        if line >= 0:
            found.setdefault(line, set()).add(meaning)
    return found


def _contradict(one: dict[int, set[int]], other: dict[int, set[int]]) -> bool:
    """Whether one says `increase` where the other says `decrease`: a word may be left out, not changed."""
    return any(not meanings & other[line] for line, meanings in one.items() if line in other)


def _parameter(answer: Answer) -> str:
    """The letter that stands for any integer: where the condition says so, else one beside pi."""
    for text in answer.condition:
        if found := re.fullmatch("([a-z]) whole", text):
            return found[1]
    letters = letters_of(answer.value) if isinstance(answer.value, Expr) else set()
    beside = isinstance(answer.value, Expr) and "pi" in names_of(answer.value, Symbol)
    return next(iter(letters)) if beside and len(letters) == 1 and letters <= {*"klmn"} else ""


def _in_parameter_of(gold: Answer, answer: Answer) -> Answer:
    """`3 + 7n` in the letter of `3 + 7k`, if each is said to be any integer."""
    wanted, given = _parameter(gold), _parameter(answer)
    beside_pi = all(isinstance(one.value, Expr) and "pi" in names_of(one.value, Symbol) for one in (gold, answer))
    said_alike = bool(gold.condition) == bool(answer.condition) or (beside_pi and not gold.condition)
    if not said_alike or not wanted or not given or f"'{wanted}'" in str(answer.value):
        return answer
    condition = tuple(f"{wanted} whole" if text == f"{given} whole" else text for text in answer.condition)
    return replace(_with_letter(answer, given, wanted), condition=condition)


def _with_letter(answer: Answer, old: str, new: str) -> Answer:
    value = answer.value
    if isinstance(value, Group | Row):
        items = tuple(_with_letter(item, old, new) for item in value.items)
        return replace(answer, value=replace(value, items=items))
    return replace(answer, value=_renamed(value, old, new)) if isinstance(value, Expr) else answer


def _by_letter(items: tuple[Answer, ...]) -> tuple[Answer, ...]:
    """Items in the alphabetical order of their names, where each has a letter of its own."""
    names = [untokenize(item.name) for item in items]
    named = all(len(name) == 1 for name in names) and len({*names}) == len(names)
    by_name = sorted(zip(names, items, strict=True), key=lambda pair: pair[0])
    return tuple(item for _, item in by_name) if named else items


def _is_letter(answer: Answer) -> bool:
    return answer.value == Symbol(answer.letter)


def _chosen(answer: Answer) -> str:
    """`B, C, D` as one word; an empty text for what is no list of choices."""
    items = answer.value.items if isinstance(answer.value, Group) else ()
    letters = [item.letter for item in items if item.letter and _is_letter(item)]
    return "".join(sorted(letters)) if len(letters) == len(items) else ""


def _fraction(expr: Expr) -> Fraction | None:
    try:
        return arithmetic.exact(expr)
    except arithmetic.NoFraction:
        return None


def _unsigned(expr: Expr) -> Expr:
    return expr.args[0] if isinstance(expr, Call) and expr.name == "-" else expr


def _conversion(gold: Unit, answer: Unit) -> Fraction | None:
    """The factor from the answer's unit to the gold's; None for another quantity. Counted things are ignored."""
    if all(halves := [_half_of_day(unit) for unit in (gold, answer)]):
        return Fraction(1) if len({*halves}) == 1 else None
    words = [[word for word in unit.words.split() if word not in OPPOSITES] for unit in (gold, answer)]
    if any(words):  # and one has no other unit, as people per day has
        worded = all(words)
        if not (worded and gold.dimensions and answer.dimensions):
            return Fraction(1) if worded or not (gold.dimensions or answer.dimensions) else None
    temperatures = {(("deg", 1),), (("degC", 1),), (("degF", 1),)}
    if gold.dimensions != answer.dimensions:
        both = {gold.dimensions, answer.dimensions}
        return Fraction(1) if both <= temperatures and (("deg", 1),) in both else None
    return answer.factor / gold.factor


def _half_of_day(unit: Unit) -> str:
    """Of a.m. or p.m., which is also read as picometres."""
    picometres = unit.dimensions == (("m", 1),) and unit.factor == Fraction(1, 10**12)
    return unit.words[0] if unit.words in ("am", "pm") else "p" if picometres else ""


def _clock(time: Ratio, beside: Ratio) -> tuple[int, ...]:
    """The time on a 24-hour clock; as written if only `time` has a.m. or p.m., because `beside` may mean either."""
    hour, *rest = time.time
    if time.half and not beside.half and 1 <= beside.time[0] <= 12:
        return time.time
    return (hour % 12 + 12 * (time.half == "p") if time.half else hour, *rest)


def _is_decimal(form: Answer) -> bool:
    return isinstance(form.value, Expr) and arithmetic.decimal_digits(form.value) is not None


def _as_equation(side: Answer) -> Expr | None:
    """The left side minus the right side of an equation; None for what cannot be subtracted."""
    if side.name:
        try:
            left: Expr | None = expression(side.name)
        except NoExpression:
            return None
        right = _term(replace(side, name=()))
    elif isinstance(side.value, Relation):
        left, right = map(_term, side.value.sides)
        if side.value.sign in (r"\ge", ">"):
            left, right = right, left
    else:
        return None
    return None if left is None or right is None else Call("+", (left, Call("-", (right,))))


def _term(side: Answer) -> Expr | None:
    bare = side.bare or side == Answer(side.value, letter=side.letter) and _is_letter(side)
    return side.value if bare and isinstance(side.value, Expr) and side.unit is None else None


# Names of answers, functions and letters.


def _same_name(gold: Tokens, answer: Tokens) -> bool:
    """`|AB|` is `AB`, `f(x)` is `f`, `x_{1}` is `x`; words match any symbol, and words that contain them."""
    one, other = (re.sub(r"m?\\angle|\\triangle|\\overline", "", untokenize(name)) for name in (gold, answer))
    plain, beside = (name.translate(_DECORATION) for name in (one, other))
    if plain in (beside, beside[::-1] if beside.isupper() else beside):  # ABC is CBA
        return True
    worded = [any(token.kind == "word" and len(token.text) > 1 for token in side) for side in (gold, answer)]
    if all(worded):
        one, other = (name.lower().replace(" ", "") for name in (one, other))
        return one in other or other in one
    if any(worded):
        return True
    primed = (re.sub(r"\\frac\{d([a-zA-Z])\}\{d[a-z]\}", r"\1'", name) for name in (one, other))  # y' is dy/dx
    bases = [name.split("_")[0].split("(")[0] for name in primed]
    return bases[0] == other or bases[1] == one


def _as_number(point: Answer) -> Answer:
    """`C(9,4)` beside a number is a binomial, not a point."""
    if isinstance(point.value, Row) and untokenize(point.name) == "C" and len(point.value.items) == 2:
        top, bottom = map(quantity, point.value.items)
        if top and bottom:
            return Answer(Call("binomial", (top, bottom)))
    return point


def _in_letters_of(gold: Expr, answer: Expr) -> Expr:
    """The answer with the gold's constants of integration: `Ce^{-x}` becomes `ce^{-x}`, `x + K` becomes `x + C`."""
    wanted, given = letters_of(gold), letters_of(answer)
    added = [names & {*"cCkK"} for names in (wanted - given, given - wanted)]
    if all(
        len(names) == 1 and Symbol(*names) in parts(side) for names, side in zip(added, (gold, answer), strict=True)
    ):
        return _renamed(answer, *added[1], *added[0])
    changed = {name: name[0].swapcase() + name[1:] for name in wanted - given if name[0] in "cCkK"}
    if changed and set(changed.values()) == given - wanted and len(changed) == len(wanted - given):
        for name, other in changed.items():
            answer = _renamed(answer, other, name)
    return answer


def _renamed(expr: Expr, old: str, new: str) -> Expr:
    if isinstance(expr, Symbol):
        return Symbol(new) if expr.name == old else expr
    return Call(expr.name, tuple(_renamed(arg, old, new) for arg in expr.args)) if isinstance(expr, Call) else expr
