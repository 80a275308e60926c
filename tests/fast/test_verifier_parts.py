"""The parts that say what an answer is: times, units, labels, rare numerals, regions."""

from fractions import Fraction

import pytest

from real_openrlhf.rewards.verifier import labels, regions, structure
from real_openrlhf.rewards.verifier.clock import time_of_day
from real_openrlhf.rewards.verifier.normalise import denominators, normalise
from real_openrlhf.rewards.verifier.units import value_and_unit


@pytest.mark.parametrize(
    "text, seconds, of_day",
    [
        ("8:34 \\text{ p.m.}", 20 * 3600 + 34 * 60, True),
        ("8:34", 8 * 3600 + 34 * 60, False),
        ("20:34:05", 20 * 3600 + 34 * 60 + 5, True),
        ("12:00 AM", 0, True),
        ("12:00 \\text{ PM}", 12 * 3600, True),
        ("3 p.m.", 15 * 3600, True),
        ("24:00", 0, True),
    ],
)
def test_times_of_day(text, seconds, of_day):
    assert time_of_day(normalise(text)) == (seconds, of_day)


@pytest.mark.parametrize("text", ["7:60", "25:00", "1:4", "13:00 p.m.", "12", "1:2:3", "3 m", "a:bc"])
def test_what_is_no_time(text):
    assert time_of_day(normalise(text)) is None


@pytest.mark.parametrize(
    "text, value, unit",
    [
        ("12 \\text{ cm}^2", "12", ({"m": 2}, "1/10000")),
        ("12 \\text{ square centimeters}", "12", ({"m": 2}, "1/10000")),
        ("5 \\text{ km/h}", "5", ({"m": 1, "s": -1}, "5/18")),
        ("5 \\text{ miles per hour}", "5", ({"in": 1, "s": -1}, "88/5")),
        ("9.8\\,\\mathrm{m}/\\mathrm{s}^2", "9.8", ({"m": 1, "s": -2}, "1")),
        ("\\$7", "7", ({"dollar": 1}, "1")),
        ("40\\%", "40", ({"%": 1}, "1")),
        ("35^\\circ", "35", ({"deg": 1}, "1")),
        ("25^\\circ C", "25", None),
        ("15 students", "15", None),
        ("5\\,\\text{N}\\cdot\\text{m}", "5", ({"N": 1, "m": 1}, "1")),
        ("24abcd", "24abcd", None),
        ("\\sin 30^\\circ", "\\sin30^{\\circ}", None),
    ],
)
def test_units(text, value, unit):
    found, known = value_and_unit(normalise(text))
    assert found == value
    assert (known and (dict(known.powers), known.size)) == (unit and (unit[0], Fraction(unit[1])))


@pytest.mark.parametrize(
    "text, plain",
    [
        (r"0.1\overline{6}", r"\frac{1}{6}"),
        (r"0.\dot{1}4285\dot{7}", r"\frac{1}{7}"),
        ("0.2(3)", r"\frac{7}{30}"),
        ("0.1666...", r"\frac{1}{6}"),
        (r"3.14159\ldots", "3.14159"),
        ("3.14...", r"3.14\ldots"),
        ("3̅.5", r"\overline{3}.5"),
        ("45^\\circ 30' 36''", r"\frac{4551}{100}^{\circ}"),
        ("1.5 million", r"1.5\cdot 10^{6}"),
        ("{}_{10}C_3", r"\binom{10}{3}"),
        ("x != 3", r"x\ne3"),
        ("5!=120", "5!=120"),
        ("]2,5]", "(2,5]"),
        (r"n \equiv 1 (\text{mod } 4)", r"n\equiv1\pmod{4}"),
    ],
)
def test_rare_spellings(text, plain):
    assert normalise(text) == plain


@pytest.mark.parametrize(
    "text, name, equation",
    [
        ("x=3", "x", False),
        ("AB=4", "AB", False),
        ("|AB|=1", "|AB|", False),
        ("V_{1}:V_{2}=11:21", "V_{1}:V_{2}", False),
        (r"\frac{NO}{BO}=2", r"\frac{NO}{BO}", False),
        (r"\sin A=\frac{3}{5}", r"\sin A", False),
        ("AB=CD", "AB", True),
        ("xy=1", "xy", True),
        ("|z|=1", "|z|", True),
        ("2x+z=1", "2x+z", True),
        (r"\frac{x}{y}=2", r"\frac{x}{y}", True),
        ("7=11a+c", "7", True),
    ],
)
def test_a_label_is_no_equation(text, name, equation):
    found, value = labels.named(text)
    assert (found, labels.is_equation(found, value)) == (name, equation)


def test_numbers_that_are_equal_need_no_name():
    assert labels.named(r"0.56=56\%") == ("", r"56\%")


@pytest.mark.parametrize(
    "gold, answer",
    [("(1,2)", "(2,1)"), ("[1,2]", "(1,2)"), ("x>1", "2"), ("x>1", "(1,2),(2,3)"), ("x>1", "x>1,3"), ("x+1", "x>1")],
)
def test_points_and_numbers_are_no_regions(gold, answer):
    assert regions.comparable(gold, answer) is None


@pytest.mark.parametrize("text", ["x>1", "1<x<2", r"\mathbb{R}\setminus\{3\}", r"(1,2)\cup[3,4]", r"\{x|x>1\}"])
def test_regions_in_all_notations(text):
    assert regions.comparable(normalise(text), "[0,1)") is not None


def test_solutions_are_grouped_by_unknown():
    def shape(text):
        return structure.parse(normalise(text))

    groups = shape("p=5,q=2;p=7,q=2")
    assert [item.names for item in groups.items] == [("p", "q"), ("p", "q")]
    assert isinstance(shape("x_1=2,x_2=3"), structure.Collection)  # roots: their order says nothing
    assert shape("x=1,x=1") == shape("x=1")
    assert len(shape("1,1,2").items) == 3


def test_denominators_at_every_depth():
    assert denominators(r"\frac{1}{\frac{2}{0}}+\frac{a}{b}") == [r"\frac{2}{0}", "0", "b"]
    assert denominators(r"\frac{1}") == [""]
