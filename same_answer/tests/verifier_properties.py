r"""What must hold for any answer, and the random answers to try it on: noise, LaTeX, formulas of known value.

The fast tests run each property for a second or two, benchmarks/fuzz.py for as long as it is told.
"""

import math
from fractions import Fraction
from random import Random

import spelled_pairs
from hypothesis import strategies as st

from same_answer import compare, verdict
from same_answer.arithmetic import NeedsDigits
from same_answer.conventions import CONVENTIONS
from same_answer.process import NoVerdict
from same_answer.reading.tex import clean
from same_answer.verdict import FAILED, verify

RIGHT = ("exact", "algebra")
WRONG = ("no_answer", "unfinished_thinking", "too_long", "too_deep", "too_large", "different", "unread", *CONVENTIONS)

_PIECES = (
    r"\frac{", r"\dfrac12", r"\sqrt{", r"\sqrt[3]{", r"\boxed{", r"\text{", r"\text{ cm}", r"\text{ or }", r"\left(",
    r"\right)", r"\left\{", r"\right.", r"\begin{pmatrix}", r"\end{pmatrix}", r"\begin{cases}", r"\end{cases}", r"\\",
    r"\{", r"\}", r"\cup", r"\cap", r"\setminus", r"\in", r"\mathbb{R}", r"\mathbb{Z}", r"\le ", r"\ge ", r"\ne ",
    r"\mid ", r"\approx ", r"\equiv ", r"\pmod{", r"\overline{", r"\dot{", r"\ldots", r"\pm ", r"\infty", r"\pi",
    r"\theta", r"\sin ", r"\log_{2}", r"\sum_{k=1}^{", r"\int_0^1 ", r"\lim_{x\to 0}", r"\cdot ", r"\times ",
    r"\angle ", r"\circ", r"\mathbf{i}", r"\hat{j}", r"\%", r"\$", r"\!", r"\,", "&", "$", "{", "}", "(", ")", "[",
    "]", "|", "^", "_", "!", "!=", "<", ">", "=", ":", ",", ";", ".", "...", "'", "+", "-", "*", "/", "~", " ", "\n",
    "0", "1", "2", "12", "345", "0.5", "1,234", "1e5", "x", "y", "k", "A", "AB", "P(", "f(x)", "i", "e", "C", "a.m.",
    "p.m.", "cm", "and", "or", "to", "for all", "nan", "inf", "½", "√", "²", "π", "≤", "∞", "∅", "\u0305", "\u200b",
    "\u202e", "\ud800", "\x00", "\x1b[2J", "答", "\\", "</think>", "<think>",
)  # fmt: skip

noise = st.text(max_size=60)
latex = st.lists(st.sampled_from(_PIECES), max_size=25).map("".join)
anything = st.one_of(latex, latex, noise)


@st.composite
def arithmetic(draw, depth: int = 3) -> tuple[str, Fraction | None]:
    """LaTeX of arithmetic and its value, built side by side; None where it divides by zero."""
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(_numbers())
    (left, a), (right, b) = draw(arithmetic(depth - 1)), draw(arithmetic(depth - 1))
    kind = draw(st.sampled_from(["+", "-", r"\cdot ", r"\frac", "/", "^"]))
    if kind == "^":
        power = draw(st.integers(-2, 3))
        undefined = a is None or (a == 0 and power <= 0)  # 0^0 has no value here
        return f"\\left({left}\\right)^{{{power}}}", None if undefined else a**power
    undefined = None in (a, b) or (kind in ("/", r"\frac") and b == 0)
    value = None if undefined else {"+": a + b, "-": a - b, r"\cdot ": a * b}.get(kind)
    value = value if undefined or value is not None else a / b
    text = f"\\dfrac{{{left}}}{{{right}}}" if kind == r"\frac" else f"({left}){kind}({right})"
    return text, value


@st.composite
def _numbers(draw) -> tuple[str, Fraction]:
    n, digit = draw(st.integers(0, 30)), draw(st.integers(1, 8))
    forms = [(f"{n}.25", n + Fraction(1, 4)), (f"{n + 1}\\frac{{1}}{{3}}", n + Fraction(4, 3))]
    recurring = (f"{n}.\\overline{{{digit}}}", n + Fraction(digit, 9))
    return draw(st.sampled_from([(str(n), Fraction(n)), *forms, recurring]))


def exactly(gold: str, answer: str) -> bool | None:
    """The verdict without algebra; None where that has to decide."""
    if verdict.too_deep(gold) or verdict.too_deep(answer):
        return None
    try:
        return compare.same(gold, answer)
    except (NeedsDigits, NoVerdict):
        return None


def there_is_always_a_verdict(gold: str, response: str) -> None:
    for text, prompt in ((f"so \\boxed{{{response}}}", ""), (response, ""), (f"\\boxed{{{gold}+0}}", f"${response}$")):
        verdict = verify(text, gold, prompt=prompt)
        assert verdict.reason in (*RIGHT, *WRONG, *FAILED) and verdict.reason != "verifier_error", verdict
        assert math.isnan(verdict.score) or verdict.score in (0.0, 1.0)


def arithmetic_is_equal_where_its_value_is(one, other, index: int) -> None:
    (gold, gold_value), (answer, value) = one, other
    known = None not in (gold_value, value)
    if clean(gold) != clean(answer):
        assert exactly(gold, answer) is (known and gold_value == value)
    if gold_value is not None:
        assert exactly(gold, spelled_pairs.fraction(Random(index), gold_value)) is True
        assert exactly(gold, spelled_pairs.fraction(Random(index), gold_value + 1)) is False


def what_has_no_value_equals_nothing(one, other, symbol: str) -> None:
    (gold, gold_value), (answer, _) = one, other
    if gold_value is not None:
        gold = f"\\frac{{{gold}}}{{0}}"
    for text in (answer, symbol, f"{answer}+\\pi"):
        if clean(gold) != clean(text):
            assert verify(f"\\boxed{{ {text}\\, }}", gold).score != 1.0 != verify(f"\\boxed{{{gold}}}", text).score


def equality_is_symmetric(seed: int) -> None:
    rng = Random(seed)
    gold, *others = rng.choice(spelled_pairs.KINDS)(rng)
    for other in others:
        there, back = verify(f"\\boxed{{{other}}}", gold), verify(f"\\boxed{{{gold}}}", other)
        assert (there.score == 1.0) == (back.score == 1.0) or there.ignored or back.ignored


PROPERTIES = {
    there_is_always_a_verdict: (latex.filter(bool), anything),
    arithmetic_is_equal_where_its_value_is: (arithmetic(), arithmetic(), st.integers(0, 99)),
    what_has_no_value_equals_nothing: (
        *(arithmetic(), arithmetic()),
        st.sampled_from(["nan", r"\infty", "inf", r"\text{undefined}", "x"]),
    ),
    equality_is_symmetric: (st.integers(0, 2**32),),
}
