"""The pure parts of the verifier: what is the answer, what does its text mean, which number is it."""

import json
from fractions import Fraction
from math import comb, factorial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_openrlhf.rewards.verifier import exact, screen
from real_openrlhf.rewards.verifier.extract import after_thinking, boxed_answer
from real_openrlhf.rewards.verifier.golds import golds_of
from real_openrlhf.rewards.verifier.normalise import normalise

INTEGERS = st.integers(0, 999)


@st.composite
def arithmetic(draw, depth: int = 3) -> tuple[str, Fraction]:
    """A LaTeX text of arithmetic and its value, built side by side."""
    if depth == 0 or draw(st.booleans()):
        number = draw(INTEGERS)
        if draw(st.booleans()):
            return str(number), Fraction(number)
        places = draw(st.integers(1, 3))
        return f"{number}.{0:0{places}d}", Fraction(number)
    left, a = draw(arithmetic(depth - 1))
    right, b = draw(arithmetic(depth - 1))
    kind = draw(st.sampled_from(["+", "-", r"\cdot ", r"\times ", r"\frac", "/", "^", "()"]))
    if kind in ("/", r"\frac") and b == 0:
        right, b = "7", Fraction(7)
    if kind == r"\frac":
        return f"\\dfrac{{{left}}}{{{right}}}", a / b
    if kind == "^":
        power = draw(st.integers(0, 4))
        return f"\\left({left}\\right)^{power}", a**power
    if kind == "()":
        return f"({left})({right})", a * b
    value = {"+": a + b, "-": a - b, r"\cdot ": a * b, r"\times ": a * b, "/": a / b if b else a}[kind]
    return f"({left}){kind}({right})", value


@settings(max_examples=150, deadline=None)
@given(arithmetic())
def test_arithmetic_has_its_exact_value(case):
    text, value = case
    assert exact.rational(normalise(text)) == value


@settings(max_examples=60, deadline=None)
@given(st.integers(-(10**12), 10**12))
def test_every_spelling_of_an_integer_is_that_integer(number):
    sign, digits = ("-", str(-number)) if number < 0 else ("", str(number))
    grouped = f"{-number if number < 0 else number:,}"
    separators = (",", "{,}", r",\!", r"\,")
    spellings = [grouped.replace(",", separator) for separator in separators]
    for spelling in (*spellings, digits, f"00{digits}", f"{digits}.0", f"{digits}.", f"${digits}$", f"{{{digits}}}"):
        assert exact.rational(normalise(sign + spelling)) == number, spelling


@pytest.mark.parametrize(
    "text, value",
    [
        (r"1\frac{4}{5}", Fraction(9, 5)),
        ("2 1/2", Fraction(5, 2)),
        (r"2\cdot\frac{1}{2}", Fraction(1)),
        (r"-3\frac12", Fraction(-7, 2)),
        ("4.5e3", Fraction(4500)),
        (r"4.5 \times 10^{-3}", Fraction(9, 2000)),
        (r"\frac{100!}{2^{50}}", Fraction(factorial(100), 2**50)),
        (r"{20 \choose 3}", Fraction(comb(20, 3))),
        ("2^10", Fraction(1024)),
        (r"\frac37", Fraction(3, 7)),
        ("-2^2", Fraction(-4)),
        ("(-2)^2", Fraction(4)),
        ("2-3-4", Fraction(-5)),
        ("12/3/2", Fraction(2)),
        ("2^{-2}", Fraction(1, 4)),
    ],
)
def test_notations_of_numbers(text, value):
    assert exact.rational(normalise(text)) == value


@pytest.mark.parametrize("text", ["x", "1,2", r"\sqrt{4}", "2^{1/2}", "(1", "1)", "", "1 2", "7!!", "3+", "12:00"])
def test_what_is_no_rational_number_is_left_alone(text):
    assert exact.rational(normalise(text)) is None


@pytest.mark.parametrize("text", ["1/0", "0^{-1}", r"\frac{0}{\frac{0}{0}}", r"2+\frac{3}{1-1}"])
def test_a_division_by_zero_has_no_value(text):
    with pytest.raises(exact.NoValue):
        exact.rational(normalise(text))


@pytest.mark.parametrize(
    "text", ["9^{9^{9}}", "2^{99999999}", "99999999!", "10^{-99999999}", r"\binom{1000000}{500000}", "7" * 5000]
)
def test_numbers_beyond_any_answer_are_refused_before_they_are_computed(text):
    with pytest.raises(exact.TooLarge):
        exact.rational(normalise(text))


def test_a_decimal_stands_for_what_it_rounds_only_with_enough_digits():
    third = Fraction(1, 3)
    assert exact.same_rational(r"\frac{1}{3}", "0.333333", third, Fraction("0.333333"))
    assert not exact.same_rational(r"\frac{1}{3}", "0.33333", third, Fraction("0.33333"))
    assert not exact.same_rational(r"\frac{1}{3}", "0.333334", third, Fraction("0.333334"))
    two_thirds = Fraction(2, 3)
    assert exact.same_rational("2/3", "0.666667", two_thirds, Fraction("0.666667"))  # rounded
    assert exact.same_rational("2/3", "0.666666", two_thirds, Fraction("0.666666"))  # cut
    assert not exact.same_rational("2/3", "0.666668", two_thirds, Fraction("0.666668"))
    # A gold with a finite decimal is that decimal and nothing near it.
    assert not exact.same_rational("0.1234567", "0.123457", Fraction("0.1234567"), Fraction("0.123457"))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="\\{}()[]^_$,.;:!|&%+-*/=<>~' \n012ax\u200b²½π", max_size=80))
def test_normalising_any_text_is_stable_and_never_fails(text):
    once = normalise(text) if not screen.too_deep(text) else ""
    assert "\u200b" not in once and "$" not in once
    exact_value = _value(once)
    assert exact_value is None or exact_value == _value(normalise(once))


def _value(text: str) -> Fraction | None:
    try:
        return exact.rational(text)
    except (exact.TooLarge, exact.NoValue):
        return None


@pytest.mark.parametrize(
    "response, answer",
    [
        (r"so \boxed{3}. Wait, no: \boxed{4}.", "4"),
        (r"either \boxed{3} or \boxed{4}", "3, 4"),
        (r"$\boxed{3}$ and $\boxed{4}$ and $\boxed{5}$", "3, 4, 5"),
        (r"\boxed{4} \boxed{4}", "4"),
        (r"\fbox{4}", "4"),
        (r"\boxed {4}", "4"),
        (r"\boxed 4.", "4"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\boxed{5}}", "5"),
        ("the answer is 4", None),
        (r"\boxed{4", None),
        (r"\boxed{4}. Or rather \boxed{5", None),
        (r"\boxed{}", None),
        (r"\boxed", None),
        (r"\boxedly{4}", None),
    ],
)
def test_the_answer_is_in_the_last_box(response, answer):
    assert boxed_answer(response) == answer


@pytest.mark.parametrize(
    "response, required, optional",
    [
        ("a</think>b", "b", "b"),
        ("<think>a</think>b</think>c", "c", "c"),
        ("b", None, "b"),
        ("<think>a", None, None),
        ("<think>a</think>b<think>c", None, None),
    ],
)
def test_what_follows_the_thinking(response, required, optional):
    assert after_thinking(response, "required") == required
    assert after_thinking(response, "optional") == optional


@pytest.mark.parametrize(
    "label, golds",
    [
        ("7", ("7",)),
        ('["7", "8"]', ("7", "8")),
        ("[0, 1]", ("[0, 1]",)),  # an interval
        ("[-1,2)", ("[-1,2)",)),
        ('["7", "7"]', ("7",)),
        (7, ("7",)),
        (142.0, ("142.0",)),
        (["7", 8], ("7", "8")),
        (r"\boxed{7}", ("7",)),
        (r"$\boxed{\frac{1}{2}}$", (r"\frac{1}{2}",)),
        ("4.5e33\n", ("4.5e33",)),
        ("", ()),
        (None, ()),
        (True, ()),
        ([], ()),
        ('[""]', ()),
    ],
)
def test_a_label_is_one_gold_or_a_list_of_texts(label, golds):
    assert golds_of(label) == golds


def test_labels_written_as_json_come_back():
    golds = ["\\frac{1}{2}", "0.5", '"quoted"']
    assert golds_of(json.dumps(golds)) == tuple(golds)
