"""What the audit asks a grader: respelled answers, near misses, and answers that hang it or run in it."""

import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple


class Question(NamedTuple):
    kind: str  # missed, accepted, hard, executed, thread or unreadable
    name: str  # of the change
    answer: str
    gold: str
    response: str = ""


INTEGERS = "7", "12", "144", "1234", "50000", "123456789", "-48"
DECIMALS = "0.5", "3.25", "-2.5", "0.0625"
FRACTIONS = r"\frac{1}{2}", r"\frac{22}{7}", r"\frac{5}{12}", r"-\frac{2}{3}"
NUMBERS = INTEGERS + DECIMALS + FRACTIONS
COLUMN = r"\begin{pmatrix}1\\2\end{pmatrix}"
FORMS: dict[str, tuple[str, str]] = {  # gold: other forms of its value; other values
    r"\sqrt{2}": (r"\sqrt2 ; 2^{1/2} ; \frac{2}{\sqrt{2}}", r"2 ; \sqrt{3} ; 1.41 ; \sqrt[3]{2}"),
    r"3\sqrt{5}": (r"\sqrt{45} ; \sqrt{5}\cdot 3 ; \frac{15}{\sqrt{5}}", r"5\sqrt{3} ; \sqrt{15} ; 3+\sqrt{5}"),
    r"\frac{\pi}{6}": (r"\pi/6 ; \frac{1}{6}\pi ; \frac{2\pi}{12}", r"\frac{\pi}{3} ; \frac{1}{6} ; 0.52"),
    "2+3i": ("3i+2 ; 2+3 i", "2-3i ; 3+2i ; 2+3"),
    "(3,-4)": (r"(3, -4) ; \left(3,-4\right) ; (\frac{6}{2},-4)", "(-4,3) ; (3,4) ; (3,-4,0) ; [3,-4]"),
    "[0,1)": (r"[0, 1) ; \left[0,1\right) ; 0 \le x < 1", "[0,1] ; (0,1) ; [0,2)"),
    r"\{1,2,3\}": (r"\{3,1,2\} ; \{1, 2, 3\} ; \left\{1,2,3\right\}", r"\{1,2\} ; \{1,2,3,4\} ; 6"),
    "x^2+3x+2": ("(x+1)(x+2) ; 3x+2+x^2 ; x^{2}+3x+2", "x^2+3x-2 ; x^3+3x+2 ; y^2+3y+2 ; x^2+5x"),
    COLUMN: (r"\begin{bmatrix} 1 \\ 2 \end{bmatrix}", r"\begin{pmatrix}2\\1\end{pmatrix}"),
    r"\text{B}": (r"B ; (B) ; \textbf{(B)}", "A ; (C) ; AB"),
    r"15\text{ cm}^2": (r"15 \mathrm{cm}^2 ; 15", r"15\text{ cm}^3 ; 15\text{ m}^2 ; 16"),
    r"3\times10^8": (r"3 \cdot 10^{8} ; 300000000", r"3\times10^7 ; 3e-8 ; 38"),
}


def _of(golds: tuple[str, ...], change: Callable[[str, Fraction], object]) -> dict[str, str]:
    """{gold: what becomes of its text and value}, of these golds alone."""
    values = [re.sub(r"\\frac{(\d+)}{(\d+)}", r"\1/\2", gold) if gold in NUMBERS else "0" for gold in golds]
    return {gold: str(change(gold, Fraction(value))) for gold, value in zip(golds, values, strict=True)}


def _around(golds: tuple[str, ...], *texts: str) -> dict[str, dict[str, str]]:
    return {text: {gold: text.replace("A", gold) for gold in golds} for text in texts}


OVER = "\\frac{{{}}}{{{}}}".format
AROUND = "A.", "  A ", "A\n", r"\,A\,", r"\!A", "~A", r"A \quad", "$A$", r"\(A\)", r"\[A\]", "{A}", r"\boxed{A}"
MARKS, NEGATIVE, ABOVE_3 = (",", "{,}", r"\,"), ("-2.5", "-48", FRACTIONS[3]), ("3.25", FRACTIONS[1])
KEEPS: dict[str, dict[str, str]] = {
    **_around((*NUMBERS, *FORMS), *AROUND, r"\displaystyle A"),
    r"\dfrac": {gold: gold.replace(r"\frac", r"\dfrac") for gold in (*FRACTIONS, *FORMS)},
    **_around(NUMBERS, r"\mathbf{A}", "x = A"),
    **_around(INTEGERS, r"\text{A}", "A.0"),
    "+A": _of(NUMBERS, lambda gold, value: "+" + gold if value > 0 else gold),
    "Unicode minus": _of(NUMBERS, lambda gold, _: gold.replace("-", "\u2212")),
    "full-width digits": _of(INTEGERS, lambda gold, _: gold.translate({48 + n: 0xFF10 + n for n in range(10)})),
    **{f"1{mark}234": {gold: f"{int(gold):,}".replace(",", mark) for gold in INTEGERS} for mark in MARKS},
    "2A/2": _of(NUMBERS, lambda _, value: OVER(2 * value.numerator, 2 * value.denominator)),
    "a/b": _of(DECIMALS + FRACTIONS, lambda _, value: value),
    "minus below": _of(NEGATIVE, lambda _, value: OVER(-value.numerator, -value.denominator)),
    "mixed number": _of(ABOVE_3, lambda _, value: f"3{OVER((value - 3).numerator, value.denominator)}"),
}
BREAKS: dict[str, dict[str, str]] = {
    "A + 1": _of(INTEGERS[:3], lambda _, value: value + 1),
    "-A": _of(NUMBERS, lambda gold, value: gold[1:] if value < 0 else "-" + gold),
    "digits swapped": _of(INTEGERS[3:], lambda gold, _: gold[:-2] + gold[:-3:-1]),
    "last digit": _of(DECIMALS, lambda gold, _: gold[:-1] + str((int(gold[-1]) + 1) % 10)),
    "1/A": _of(FRACTIONS, lambda _, value: OVER(value.denominator, value.numerator)),
    "two decimals": _of(FRACTIONS[1:], lambda _, value: f"{float(value):.2f}"),
    "or": _of(INTEGERS, lambda gold, value: rf"{gold} \text{{ or }} {value + 1}"),
    **_around(NUMBERS, "(A)^2", r"A\pi", "Ai", "Ax"),
    **_around(INTEGERS[:3], r"A\%", r"\text{not }A", "A0"),
}
HARD: dict[str, tuple[str, str]] = {  # what hung or silenced a grader, with the issue that says so: answer, gold
    "tower of fives (Math-Verify 65)": (r"\dfrac{5^{(5^{(5^{(5^5)})} - 4)} - 5}{16}", "7"),
    "ten to a tower (sympy 28112)": (r"10^{\left(5^{5^{5^{5^{5}}} \cdot \log_{10}(5)} - 4\right)}", "7"),
    "Chinese and a brace (Math-Verify 65)": ("人权 国 {1,1-3-10鼓励不停);5个_GENERAL2全校。 _H1", "92.58"),
    "series (NeMo Gym 1354)": ("+".join(f"x^{{{k}}}" for k in range(50)), r"\frac{x^{50}-1}{x-1}"),
    "huge fraction above (sympy 21762)": (rf"4^{{\frac{{{'1' * 33}}}{{{'2' * 13}}}}}", "7"),
    "10**10**8 (smolagents 2551)": ("10^{10^{8}}", "7"),
    "sum over 10^9": (r"\sum_{k=1}^{10^9} \frac{1}{k^2}", "7"),
    "trigonometric sum": ("+".join(rf"\sin^{{{k}}}({k}x)" for k in range(1, 40)), r"\cos(x)"),
}
# Python that makes a file or folder `ran` in the working directory
PYTHON = ("open('ran','w')", r"open('ran','w') or \pi", r"open('ran','w') and 2*\pi", "[open('ran','w')]",
          "__import__('os').mkdir('ran')", "x+open(''.join(map(chr,[114,97,110])),'w').close()")  # fmt: skip
UNREADABLE = "", r"\frac{1}{", r"\qux_{\bar", "Anya climbs one floor while Vanya climbs five floors of the same house"
EASY = [Question("thread", "easy", *pair) for pair in (("2", "2"), ("3", "2"), ("12", "12"), ("21", "12"))]


def questions() -> list[Question]:
    asked = [Question("missed", name, *pair[::-1]) for name, texts in KEEPS.items() for pair in texts.items()]
    asked += [Question("accepted", name, *pair[::-1]) for name, texts in BREAKS.items() for pair in texts.items()]
    for gold, forms in FORMS.items():
        for kind, answers in zip(("missed", "accepted"), forms, strict=True):
            asked += [Question(kind, "another form", answer, gold) for answer in answers.split(" ; ")]
    asked = [question for question in asked if question.answer != question.gold]
    random.Random(0).shuffle(asked)  # of a slow grader a sample is asked
    asked += [Question("hard", name, *pair) for name, pair in HARD.items()]
    asked += [Question("executed", text, text, gold) for text in PYTHON for gold in ("5", r"2\pi", "x+1", COLUMN)]
    return asked + EASY + [Question("unreadable", "gold", "5", gold) for gold in UNREADABLE]
