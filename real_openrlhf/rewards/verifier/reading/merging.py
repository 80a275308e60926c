"""Several answers as one: lists, joint intervals, what is left of the real numbers without some."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from real_openrlhf.rewards.verifier.arithmetic import NotRational, NoValue, TooLarge, exact
from real_openrlhf.rewards.verifier.reading.answer import INFINITY, Answer, Bounded, Group, Named, Quantity, Row, Text
from real_openrlhf.rewards.verifier.reading.expression import Call
from real_openrlhf.rewards.verifier.reading.tex import plain

NOTHING = Text("emptyset")


def joint_bounds(items: list[Answer]) -> Answer | None:
    """`x \\ge 1 and x < 9` is one interval."""
    if len(items) != 2 or not all(isinstance(item, Bounded) for item in items):
        return None
    one, other = (item for item in items if isinstance(item, Bounded))
    if one.name != other.name or not isinstance(one.interval, Row) or not isinstance(other.interval, Row):
        return None
    below = [row for row in (one.interval, other.interval) if is_infinite(row.items[1])]
    above = [row for row in (one.interval, other.interval) if is_infinite(row.items[0])]
    if len(below) != 1 or len(above) != 1:
        return None
    try:
        ends = [exact(side.value) for side in (below[0].items[0], above[0].items[1]) if isinstance(side, Quantity)]
    except (NotRational, NoValue, TooLarge):
        return None
    if len(ends) != 2:
        return None
    if ends[0] >= ends[1]:
        return NOTHING
    return Bounded(one.name, Row(below[0].brackets[0] + above[0].brackets[1], (below[0].items[0], above[0].items[1])))


def joint_gaps(items: list[Answer]) -> Answer | None:
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
    apart = complement(Group(tuple(points)))
    return Bounded(first.name, apart) if isinstance(apart, Group) else None


def cut_out(items: list[Answer]) -> Answer | None:
    """`x > 0, x \\ne 1`: an interval of one letter without points inside it."""
    whole, *gaps = sorted(items, key=lambda item: not isinstance(getattr(item, "interval", None), Row))
    if not isinstance(whole, Bounded) or not isinstance(whole.interval, Row) or not gaps:
        return None
    points: list[Answer] = []
    for gap in gaps:
        if not isinstance(gap, Bounded) or gap.name != whole.name or not isinstance(gap.interval, Group):
            return None
        points += [row.items[1] for row in gap.interval.items[:-1] if isinstance(row, Row)]
    left = without(whole.interval, points)
    return left and Bounded(whole.name, left)


def without(interval: Row, points: list[Answer]) -> Group | None:
    """What is left of an interval, if all the points are numbers inside it."""
    try:
        values = [exact(point.value) for point in points if isinstance(point, Quantity)]
        ends = [None if is_infinite(end) else exact(end.value) for end in interval.items if isinstance(end, Quantity)]
    except (NotRational, NoValue, TooLarge):
        return None
    if len(values) < len(points) or len(ends) != 2 or not values:
        return None
    low, high = ends
    if (low is not None and min(values) <= low) or (high is not None and max(values) >= high):
        return None
    order = [point for _, point in sorted(zip(values, points, strict=True), key=lambda pair: pair[0])]
    pieces = list(pairwise((interval.items[0], *order, interval.items[1])))
    brackets = ["()"] * len(pieces)
    brackets[0] = interval.brackets[0] + ")"
    brackets[-1] = ("(" if len(pieces) > 1 else brackets[0][0]) + interval.brackets[1]
    return Group(tuple(Row(kind, piece) for kind, piece in zip(brackets, pieces, strict=True)))


def is_infinite(side: Answer) -> bool:
    return isinstance(side, Quantity) and (side.value == INFINITY or side.value == Call("-", (INFINITY,)))


def same_forms(items: list[Answer]) -> bool:
    """Whether these are spellings of one value: a fraction and a decimal, not one number twice, not two unknowns."""
    first, *others = items
    items = [first.value if isinstance(first, Named) else first, *others]
    values = []
    for item in items:
        if not isinstance(item, Quantity) or items.count(item) > 1:
            return False
        try:
            percent = item.unit is not None and item.unit.dimensions == (("%", 1),)
            values.append(exact(item.value) / (100 if percent else 1))
        except (NotRational, NoValue, TooLarge):
            return False
    return len(set(values)) == 1


def as_group(items: list[Answer]) -> Answer:
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


def as_interval(opening: str, closing_: str, ends: tuple[Answer, ...]) -> Row:
    opening = "(" if is_infinite(ends[0]) else opening
    return Row(opening + (")" if is_infinite(ends[-1]) else closing_), ends)


def complement(of: Answer) -> Answer | None:
    """The reals without a point, points or an interval."""
    low, high = Quantity(Call("-", (INFINITY,))), Quantity(INFINITY)
    if isinstance(of, Row) and of.brackets[0] in "([" and len(of.items) == 2:
        turned = (")" if of.brackets[0] == "[" else "]", "(" if of.brackets[1] == "]" else "[")
        return as_group(
            [as_interval("(", turned[0], (low, of.items[0])), as_interval(turned[1], ")", (of.items[1], high))]
        )
    points = of.items if isinstance(of, Group) else (of,)
    try:
        ordered = sorted(points, key=lambda point: exact(point.value) if isinstance(point, Quantity) else Fraction(0))
    except (NotRational, NoValue, TooLarge):
        if len(points) > 1:
            return Text("complement", False)
        ordered = list(points)
    return as_group([Row("()", pair) for pair in pairwise((low, *ordered, high))])


def beyond(name: str, bound: Answer, closed: bool, outer: bool) -> Answer:
    """`|x| \\le 3` and `|x| > 3` as intervals."""
    low, high = Quantity(Call("-", (INFINITY,))), Quantity(INFINITY)
    if not isinstance(bound, Quantity):
        return Text("interval", False)
    minus = replace(bound, value=Call("-", (bound.value,)))
    opening, last = ("[", "]") if closed else ("(", ")")
    if not outer:
        return Bounded(name, as_interval(opening, last, (minus, bound)))
    return Bounded(name, Group((as_interval("(", last, (low, minus)), as_interval(opening, ")", (bound, high)))))
