"""What is the answer, what does its text mean, which number is it, and which verdict follows."""

import ast
import importlib
import itertools
import json
import pkgutil
import random
import re
import shutil
import signal
import subprocess
import sys
from fractions import Fraction
from math import comb, factorial
from pathlib import Path
from types import SimpleNamespace

import pytest
import spelled_pairs
import verifier_properties as properties
from hypothesis import HealthCheck, given, settings

from real_openrlhf import verifier
from real_openrlhf.evaluation.grading import find_grader
from real_openrlhf.evaluation.tasks import Task
from real_openrlhf.rewards.graded import reward_function
from real_openrlhf.rewards.graders import Asked, judge
from real_openrlhf.verifier import arithmetic
from real_openrlhf.verifier import verdict as verdict_module
from real_openrlhf.verifier.extract import after_thinking, boxed_answer, golds_of
from real_openrlhf.verifier.reading.grammar import expression
from real_openrlhf.verifier.reading.tex import clean, tokens
from real_openrlhf.verifier.reading.tree import Quantity, Unreadable
from real_openrlhf.verifier.reading.whole import read
from real_openrlhf.verifier.verdict import verify

ROOT = Path(__file__).resolve().parents[3]
ROOM = ROOT / "real_openrlhf/verifier"


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer}}}."


def number(text: str) -> Fraction:
    return arithmetic.exact(expression(tokens(clean(text))))


@pytest.mark.parametrize(
    "text, value",
    [
        (r"1\frac{4}{5}", Fraction(9, 5)), ("2 1/2", Fraction(5, 2)), (r"2\cdot\frac{1}{2}", Fraction(1)),
        (r"2\frac{3}{2}", Fraction(3)), (r"-3\frac12", Fraction(-7, 2)), ("4.5e3", Fraction(4500)),
        (r"4.5 \times 10^{-3}", Fraction(9, 2000)), (r"0.1\overline{6}", Fraction(1, 6)), ("0.2(3)", Fraction(7, 30)),
        (r"1.5 \text{ million}", Fraction(1_500_000)), (r"\frac{100!}{2^{50}}", Fraction(factorial(100), 2**50)),
        (r"\binom{20}{3}", Fraction(comb(20, 3))), ("2^10", Fraction(1024)), (r"\frac37", Fraction(3, 7)),
        ("3½", Fraction(7, 2)), ("-2^2", Fraction(-4)), ("(-2)^2", Fraction(4)), ("2-3-4", Fraction(-5)),
        ("12/3/2", Fraction(2)), ("2^{-2}", Fraction(1, 4)), ("-1,200", Fraction(-1200)), ("{007}", Fraction(7)),
        ("1{,}234.0", Fraction(1234)), (r"12\,345\,678.", Fraction(12345678)), (r"$1,\!200$", Fraction(1200)),
    ],
)  # fmt: skip
def test_notations_of_numbers(text, value):
    found = read(text)
    assert isinstance(found, Quantity) and arithmetic.exact(found.value) == value


@pytest.mark.parametrize("text", ["x", "1,2", r"\sqrt{5}", "2^{1/2}", "(1", "1)", "", "1 2", "7!!", "3+", "12:00"])
def test_what_is_no_rational_number_is_left_alone(text):
    with pytest.raises((arithmetic.NotRational, Unreadable)):
        number(text)


@pytest.mark.parametrize("text", ["1/0", "0^{-1}", r"\frac{0}{\frac{0}{0}}", r"2+\frac{3}{1-1}"])
def test_a_division_by_zero_has_no_value(text):
    with pytest.raises(arithmetic.NoValue):
        number(text)


@pytest.mark.parametrize(
    "text", ["9^{9^{9}}", "2^{99999999}", "99999999!", "10^{-99999999}", r"\binom{1000000}{500000}", "7" * 5000]
)
def test_numbers_beyond_any_answer_are_refused_before_they_are_computed(text):
    with pytest.raises((arithmetic.TooLarge, Unreadable)):
        number(text)


@pytest.mark.parametrize(
    "gold, answer, right",
    [
        (r"\frac{1}{3}", "0.333333", True),
        (r"\frac{1}{3}", "0.33333", False),
        (r"\frac{1}{3}", "0.333334", False),
        (r"\frac{2}{3}", "0.666667", True),  # rounded
        (r"\frac{2}{3}", "0.666666", True),  # cut
        (r"\frac{2}{3}", "0.666668", False),
        ("0.1234567", "0.123457", False),  # a gold with a finite decimal is nothing near it
    ],
)
def test_a_decimal_stands_for_what_it_rounds_only_with_enough_digits(gold, answer, right):
    assert verify(boxed(answer), gold).score == right


@pytest.mark.parametrize(
    "text, value, unit",
    [
        (r"12 \text{ cm}^2", 12, "0.0001 m^2"), (r"12 \text{ square centimeters}", 12, "0.0001 m^2"),
        ("12 cm^2", 12, "0.0001 m^2"), (r"5 \text{ miles per hour}", 5, "0.44704 m^1 s^-1"),
        (r"9.8\,\mathrm{m}/\mathrm{s}^2", Fraction(49, 5), "1 m^1 s^-2"),
        (r"9.8\,\mathrm{m\,s^{-2}}", Fraction(49, 5), "1 m^1 s^-2"),
        (r"\$7", 7, "100 cent^1"), (r"40\%", 40, "1 %^1"), (r"35^\circ", 35, "1 deg^1"),
        (r"25^\circ C", 25, "1 degC^1"),
        (r"3\,\mu\text{m}", 3, "1/1000000 m^1"), (r"15 \text{ students}", 15, "student"), ("7 books", 7, "book"),
    ],
)  # fmt: skip
def test_units(text, value, unit):
    found = read(text)
    assert isinstance(found, Quantity) and found.unit and arithmetic.exact(found.value) == value
    factor, *powers = unit.split() if unit[0].isdigit() else ("1",)
    dimensions = tuple(tuple(power.split("^")) for power in powers)
    assert found.unit.words == unit * (not powers) and found.unit.factor == Fraction(factor)
    assert tuple((name, str(power)) for name, power in found.unit.dimensions) == dimensions


@pytest.mark.parametrize(
    "response, answer",
    [
        (r"so \boxed{3}. Wait, no: \boxed{4}.", "4"), (r"either \boxed{3} or \boxed{4}", "3, 4"),
        (r"$\boxed{3}$ and $\boxed{4}$ and $\boxed{5}$", "3, 4, 5"), (r"\boxed{4} \boxed{4}", "4"),
        (r"\fbox{4}", "4"), (r"\boxed {4}", "4"), (r"\boxed 4.", "4"), (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\boxed{5}}", "5"), ("the answer is 4", None), (r"\boxed{4}. Or rather \boxed{5", None),
        (r"\boxed{}", None), (r"\boxed", None), (r"\boxedly{4}", None),
    ],
)  # fmt: skip
def test_the_answer_is_in_the_last_box(response, answer):
    assert boxed_answer(response) == answer


@pytest.mark.parametrize(
    "response, required, optional",
    [
        ("<think>a</think>b</think>c", "c", "c"), ("b", None, "b"), ("<think>a", None, None),
        ("<think>a</think>b<think>c", None, None),
    ],
)  # fmt: skip
def test_what_follows_the_thinking(response, required, optional):
    assert after_thinking(response, "required") == required
    assert after_thinking(response, "optional") == optional


GOLDS = ["\\frac{1}{2}", "0.5", '"quoted"']


@pytest.mark.parametrize(
    "label, golds",
    [
        ("[0, 1]", ("[0, 1]",)),  # an interval
        ("[-1,2)", ("[-1,2)",)), ('["7", "7"]', ("7",)), (7, ("7",)), (142.0, ("142.0",)), (["7", 8], ("7", "8")),
        (r"$\boxed{\frac{1}{2}}$", (r"\frac{1}{2}",)), (json.dumps(GOLDS), tuple(GOLDS)),
    ],
)  # fmt: skip
def test_a_label_is_one_gold_or_a_list_of_texts(label, golds):
    assert golds_of(label) == golds


@pytest.mark.parametrize(
    "label, answer, score",
    [
        ('["0.01", "0.02"]', "0.02", 1.0), ('["0.01", "0.02"]', "0.03", 0.0), (["\\frac{x}{2}", "2x"], "x+x", 1.0),
        ("[0, 1]", "0", 0.0),
    ],
)  # fmt: skip
def test_any_gold_of_a_label_counts(label, answer, score):
    assert verify(boxed(answer), label).score == score


@pytest.mark.parametrize("label", ["", None, [], True, {"gold": 1}, '[""]'])
def test_a_label_without_a_gold_is_no_verdict(label):
    verdict = verify(boxed("7"), label)
    assert verdict.ignored and verdict.reason == "no_gold"


def test_a_gold_that_cannot_be_read_is_no_verdict_unless_the_text_agrees():
    gold = "f(x)=ax+b where b is any integer and \\mho(a)=0"
    assert verify(boxed(gold), gold).score == 1.0
    other = verify(boxed("f(x)=ax+c where c is any integer and \\mho(c)=1"), gold)
    assert other.ignored and other.reason == "gold_unparsed"
    assert verify(boxed("x+x"), [gold, "2x"]).score == 1.0


@pytest.mark.parametrize("gold", [r"\int_0^1 x\,dx", r"\sum_{n=1}^{\infty}\frac{1}{n^2}"])
def test_what_has_no_finished_value_is_not_evaluated(gold):
    assert verify(boxed(gold), gold).score == 1.0
    assert verify(boxed(gold), r"\sqrt{2}").score == 0.0
    assert verify(boxed(r"\sqrt{2}"), gold).reason == "gold_unparsed"


def test_the_reasons_of_wrong_answers():
    reasons = [
        verify(response, "7").reason for response in (boxed("7"), boxed("8"), "7", "<think>", boxed("7" * 2000))
    ]
    assert reasons == ["exact", "different", "no_answer", "unfinished_thinking", "too_long"]
    assert verify(boxed("(" * 30 + "7" + ")" * 30), "7").reason == "too_deep"
    assert verify(boxed("\\sqrt{2}^{9^{9^{9}}}"), "\\sqrt{2}").reason == "too_large"


def test_never_an_exception_whatever_it_is_given():
    for response in (None, 7, b"\\boxed{7}", ["\\boxed{7}"]):
        assert verify(response, "7").ignored
    assert verify(boxed("\ud800"), "7").score == 0.0


def test_the_disco_grader_follows_the_rules_of_the_baselines():
    def disco(response, label="\\frac{1}{2}"):
        return judge(Asked(response, label), "required", "disco").score

    assert disco("x</think>\\boxed{1/2}") == 1.0
    assert disco("\\boxed{1/2}") == 0.0  # no </think>
    assert disco("x</think>\\boxed{2/4}") == 0.0  # it refuses fractions that are not reduced
    assert disco("x</think>\\boxed {1/2}") == 0.0  # and a box with a space
    assert disco("x</think>\\boxed{1/2}</think>\\boxed{3}") == 1.0  # it reads up to the second </think>
    assert disco("x</think>\\boxed{3,5}", "5,3") == 0.0  # order counts
    assert disco("x</think>\\boxed{0.02}", '["0.01", "0.02"]') == 1.0
    assert judge(Asked("x</think>\\boxed{9**9**9**9}", "x"), "required", "disco").reason == "timeout"


def test_the_log_spells_out_what_a_terminal_would_obey(caplog):
    assert verify("\\boxed{\\lim_{x\\to 0}}", "(<\x1b[2J\ud800").reason == "gold_unparsed"
    assert "\\x1b[2J" in caplog.text and "\\ud800" in caplog.text
    assert caplog.text.strip().replace("\n", "").isprintable() and caplog.text.encode()


def test_an_answer_that_was_taken_for_words_says_so():
    assert verify(boxed(r"\text{the number of them, 24, is given}"), "24").reason == "unread"
    assert verify(boxed(r"\text{the number of them, 42, is not}"), "24").reason == "different"
    assert verify(boxed("25"), "24").reason == "different"
    assert verify(boxed(r"\text{Monday}"), r"\text{Sunday}").reason == "different"


TOWERS = ("e^{e^{e^{e}}}", r"\pi^{\pi^{\pi^{\pi^{\pi}}}}", r"\sin(e^{e^{20}})", r"\cos(e^{9999\cdot 999})",
          r"\lfloor e^{e^{e^{6}}} \rfloor", r"\ln(e^{e^{e^{9}}})", "x^{e^{e^{e^e}}}", r"(\pi^{\pi^\pi})!",
          r"\sqrt{2}^{9^{9^{9}}}", r"e^{-e^{e^{e^{3}}}}", r"\gcd(e^{e^{e^e}}, 4)", r"\exp(\exp(\exp(20)))",
          r"\sinh(\sinh(\sinh(\sinh(5))))")  # fmt: skip


@pytest.mark.parametrize("gold", ["5", r"\sqrt{2}"])
def test_a_tower_of_powers_is_wrong_and_leaves_its_worker_alive(gold):
    workers = set(verdict_module.pool()._ready.queue)
    reasons = {tower: verify(boxed(tower), gold).reason for tower in TOWERS}
    assert set(reasons.values()) <= {"too_large", "different"}, reasons
    assert sum(reason == "too_large" for reason in reasons.values()) >= len(TOWERS) - 1, reasons
    assert set(verdict_module.pool()._ready.queue) >= workers


ALONE = r"""
from real_openrlhf.verifier.verdict import verify
assert verify(r"\boxed{\frac{2}{4}}", "0.5") == (1.0, "exact")
assert verify(r"\boxed{\gcd(2,4)}", "2", prompt="Find $\gcd(2,4)$") == (0.0, "unevaluated")
print("works")
"""


OTHER_PYTHONS = map(str, sorted(Path.home().glob(".pyenv/versions/3.1[0-3].*/bin/python")))


@pytest.mark.parametrize("python", [sys.executable, *OTHER_PYTHONS])
def test_the_folder_alone_works_without_any_other_package_on_other_pythons(python, tmp_path):
    """The package asks for Python 3.11; other trainers may have another one. Many digits need mpmath there."""
    shutil.copytree(ROOM, tmp_path / "real_openrlhf/verifier")
    done = subprocess.run([python, "-S", "-c", ALONE], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "works\n", done.stderr


def test_the_verifier_is_written_for_python_3_10():
    for path in ROOM.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 10))


PAGE = ROOT / "docs/evidence/verifier.md"
BLOCKS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
ROWS = [("1+1=", boxed("2"), "2"), ("1+1=", boxed("3"), "2"), ("1+1=", boxed("5"), ""), ("Sum:", boxed("1"), "")]


def test_the_reward_of_the_page_for_trl():
    """Without a verdict the mean of its group, whose advantage is 0; never nan."""
    names: dict = {}
    exec(BLOCKS["trl_reward"], names)
    assert names["right"](*zip(*ROWS, strict=True)) == [1.0, 0.0, 0.5, 0.0]


def test_the_reward_of_the_page_for_verl():
    names: dict = {}
    exec(BLOCKS["verl_reward"], names)
    score = names["compute_score"]
    assert score("math", boxed("2"), "2") == {"score": 1.0, "no_verdict": 0.0, "copied": 0.0}
    assert score("math", boxed("2"), "") == {"score": 0.0, "no_verdict": 1.0, "copied": 0.0}
    assert score("math", boxed("2x+x"), "3x", {"question": "Simplify $2x+x$."})["copied"] == 1.0


def test_the_environment_of_the_page_for_prime_rl(monkeypatch):
    stand_in = SimpleNamespace(Rubric=SimpleNamespace, SingleTurnEnv=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "verifiers", stand_in)
    names: dict = {}
    exec(BLOCKS["prime_environment"], names)
    rubric = names["load_environment"]([]).rubric
    assert rubric.weights == [1.0, 0.0]
    messages = ([{"content": text}] for text in ("1+1=", boxed("2")))
    asked, said = messages
    assert [one(asked, said, "2") for one in rubric.funcs] == [1.0, 0.0]
    assert [one(asked, said, "") for one in rubric.funcs] == [0.0, 1.0]


# Conventions for those who know the question


@pytest.mark.parametrize(
    "prompt, gold, answer, reason",
    [
        (r"Compute $\sin 510^\circ$.", r"\frac{1}{2}", r"\sin 510^\circ", "unevaluated"),
        (r"Compute $\sin 510^\circ$.", r"\frac{1}{2}", r"\tfrac12", ""),
        (r"Find $\gcd(12,18)$.", "6", r"\gcd(12, 18)", "unevaluated"),
        (r"Find the greatest common divisor of 12 and 18.", "6", r"\gcd(12, 18)", "unevaluated"),
        (r"Find the greatest common divisor of 12 and 18.", "6", r"\gcd(12, 18) = 6", ""),
        ("What is the remainder of 2^100 by 10?", "6", r"2^{100} \bmod 10", "unevaluated"),
        ("In how many ways can 5 people sit?", "120", "5!", "unevaluated"),
        ("In how many ways can 5 people sit?", "5!", "5!", ""),
        ("Choose 4 of 9.", "126", r"\binom{9}{4}", ""),
        (r"Evaluate $\log_2 8$.", "3", r"\log_2 8", "unevaluated"),
        (r"Simplify $\sqrt{12}+\sqrt{27}$.", r"5\sqrt{3}", r"\sqrt{12} + \sqrt{27}", "copied"),
        (r"Factor $46x^3-115x^7$.", "-23x^3(5x^4-2)", "46x^{3} - 115x^{7}", "copied"),
        (r"Factor $46x^3-115x^7$.", "-23x^3(5x^4-2)", "23x^3(2-5x^4)", ""),
        ("Factor 46x^3-115x^7.", "-23x^3(5x^4-2)", "46x^3 - 115x^7", "copied"),
        (r"Expand \((x+1)^2\).", "x^2+2x+1", "y = (x+1)^2", "copied"),
        (r"Expand \[f(x) = (x+1)^2.\]", "x^2+2x+1", "(1+x)^2", "copied"),
        (r"Write $0.\overline{5}$ as a fraction.", r"\frac{5}{9}", r"0.\overline{5}", "copied"),
        (r"Write $0.\overline{5}$ as a fraction.", r"\frac{5}{9}", r"\frac{10}{18}", ""),
        ("If $f(x) = 2x$ and $f(-1)=0$, what is it?", "0", "f(-1)=0", "copied"),
        ("There are $4$ boys and $6$ girls. How many girls?", "6", "6", ""),
        ("There are $4$ boys.", "4.0", "4", ""),  # a whole number is evaluated
        (r"Is it $\textbf{(A)}\ 17$ or $\textbf{(B)}\ 19$?", r"\text{(B)}\ 19", "B", ""),
        ("On which interval, $[1, 2)$ or $(1,2)$?", "[1,2)", r"1 \le x < 2", ""),
        (r"Simplify $2x + x$ for $y = x + 2$.", "2+x", "x+2", ""),
    ],
)  # fmt: skip
def test_an_answer_that_copies_the_question_or_leaves_its_operation_is_wrong(prompt, gold, answer, reason):
    asked = f"<|im_start|>user\n{prompt} Put the answer into \\boxed{{}}.<|im_end|>"
    assert verify(boxed(answer), gold).score == 1.0  # without the question a value is a value
    found = verify(boxed(answer), gold, prompt=asked)
    assert found == (0.0, reason) if reason else found.score == 1.0, found
    assert verify(boxed(answer), gold, prompt=asked, allowed=("copied", "unevaluated")).score == 1.0


def test_training_and_eval_know_the_question(monkeypatch):
    asked = "Simplify $2x+x$."
    copied = [asked + boxed("2x+x")], [asked], ["3x"]
    found = reward_function("robust")(*copied)
    assert (found["rewards"], found["extra_logs"]["verifier/copied"]) == (0.0, 1.0)
    assert reward_function("robust")([asked + boxed("3x")], [asked], ["3x"])["rewards"] == 1.0
    monkeypatch.setenv("REAL_ALLOW", "copied,unevaluated")
    assert reward_function("robust")(*copied)["rewards"] == 1.0
    monkeypatch.setenv("REAL_ALLOW", "copies")
    with pytest.raises(ValueError, match="REAL_ALLOW names copies"):
        reward_function("robust")
    pairs = [(Task("math", "1", asked, (), "3x"), SimpleNamespace(response=boxed("2x+x")))]
    assert [*find_grader("robust", "optional")(pairs)] == [(0.0, "copied")]
    assert [*find_grader("robust", "optional", ("copied",))(pairs)] == [(1.0, "exact")]


# The verifier on random answers: never an exception, never late, right where the truth is known, symmetric


@pytest.fixture(scope="module", autouse=True)
def workers():
    """Up before anything is timed."""
    assert verify("\\boxed{\\sqrt{8}}", "2\\sqrt{2}").reason == "algebra"


@pytest.mark.parametrize("holds", properties.PROPERTIES, ids=lambda holds: holds.__name__)
def test_property(holds):
    check = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])(
        given(*properties.PROPERTIES[holds])(holds)
    )
    check()


def test_random_values_in_random_spellings():
    """benchmarks/fuzz.py --pairs tries a hundred thousand."""
    tried = [spelled_pairs.pair(random.Random(seed)) for seed in range(2000)]
    assert [one for one in tried if verify(boxed(one[1]), one[0]).score != one[2]] == []
    assert 800 < sum(equal for *_, equal in tried) < 1200


REPEATED = (" ", ",", ", ", "a", "A", "1", "(", ")", "{", "}", "\\", "\\ldots", " \\ldots", "\\cdot ", "\\pm",
            "\\angle ",
            "\\text{a}", "\\text{ and }", "{a}", "_{1}", "^{2}", "a_{1}", "AB", "1,000", "k\\in\\mathbb{Z}",
            "x=", "\\dot{1}",
            "\\text{a}\\cdot ", ", (", "'", "&", "\n")  # fmt: skip


def test_no_pattern_backtracks_for_ever():
    """A search holds the interpreter lock until it ends, in the process that serves rollouts."""

    def too_long(signum, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_long)
    modules = (
        importlib.import_module(found.name)
        for found in pkgutil.walk_packages(verifier.__path__, f"{verifier.__name__}.")
    )
    patterns = {item for module in modules for item in vars(module).values() if isinstance(item, re.Pattern)}
    slow = []
    try:
        for pattern, piece, start in itertools.product(patterns, REPEATED, ("", "1", "x", "\\text{")):
            signal.setitimer(signal.ITIMER_REAL, 2)
            try:
                pattern.search(start + piece * (400 // len(piece)) + '"')
            except TimeoutError:
                slow.append((pattern.pattern, piece))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(patterns) > 20 and slow == []


# Answers as language models write them: (gold, right ones, wrong ones)

AS_WRITTEN = [
    ("7350", [r"\$7,350", "x = 7,350", r"7{,}350 \text{ m}", r"\mathbf{7,350}"], [r"\$7,530"]),
    ("7350", [r"3 \cdot 2450 = 7,350"], ["7,530"]),
    (r"\$8,\!120", [r"8,120 \text{ dollars}", "8120"], [r"8,210 \text{ dollars}"]),
    (r"50000\pi", [r"50,000 \pi"], [r"5,000 \pi"]),
    ("1234567", [r"1,234,567 \text{ people}"], [r"1,234,568 \text{ people}"]),
    ("(1,234)", ["(1, 234)"], ["1234", "1,234"]),
    ("3,800,5", ["3, 800, 5"], ["38005", "3,800"]),
    ("2300", ["2,300", "x=2,300"], ["2,3", "x=2,30"]),
    ("6", [r"6 \text{ at } x = 1", r"6 \text{ books}"],
     [r"6 \text{ and a half}", r"6 \text{ million dollars}", r"6 \text{ or less}", r"6 \text{ cubed}"]),
    ("4", [r"y = 4 \text{ at } x = 1"], [r"9 \text{ when } n = 4", r"y = 1 \text{ at } x = 4"]),
    (r"7 \text{ GHz}", ["7", r"7 \text{ GHz}"], [r"7 \text{ Hz}", r"7 \text{ MHz}"]),
    (r"7 \text{ J}", ["7"], [r"7 \text{ kJ}"]),
    (r"20^\circ\text{C}", ["20", r"20^\circ", r"20^\circ C"], [r"20^\circ\text{F}"]),
    ("x^{64}-1", ["-1+x^{64}"], ["x^{64}+1"]),
    ("2^{70}n+n^3", ["n^3+2^{70}n"], ["2^{70}n"]),
    ("x^{500}-3x", ["x^{500} - 3x"], ["x^{500}"]),
    ("51/3", ["51/3", "17"], ["5 1/3"]),
    ("2 1/8", ["2 1/8", r"2\frac{1}{8}"], ["21/8"]),
    ("TABLE", ["TABLE", r"\text{TABLE}"], ["BLEAT"]),
    (r"\angle XYZ", [r"\angle ZYX", "XYZ"], [r"\angle XZY"]),
    ("52_{(9)}", ["52_9", "52"], ["52_{(7)}"]),
    ("-21_6", ["-21_{6}"], ["-21_7", "21_6"]),
    ("63_{(7)}", ["63_7"], ["36_7"]),
    (r"\[\boxed{1, 4}\]", ["1,4", "4,1"], ["1,5"]),
    (r"\begin{pmatrix} 1 \\ 6 \end{pmatrix}", [r"\begin{pmatrix} 1 \\[5pt] 6 \end{pmatrix}"],
     [r"\begin{pmatrix} 1 \\[5pt] 7 \end{pmatrix}"]),
    ("(2,5)", [r"x_0 \in (2,5)"], [r"x_0 \in (2,6)"]),
    (r"2\sqrt{7}", [r"\mathbf{2\sqrt{7}}", r"\color{red}{2\sqrt{7}}"], [r"\mathbf{2\sqrt{5}}"]),
    ("(0,5)", [r"\boldsymbol{(0,5)}", "（0，5）"], [r"\boldsymbol{(5,0)}"]),
    ("31", [r"\Large 31", r"\text{The answer is } 31", "Answer: 31", "= 31"], [r"\text{The answer is } 13"]),
    ("8", [r"8^{\text{th}}", r"8^\text{th}", "8^{th}"], ["9th", "8^t"]),
    ("2nd", ["2nd"], ["2"]),
    ("126", [r"{9 \choose 4}"], [r"{9 \choose 3}"]),
    ("3,8", ["3、8"], ["3、9"]),
    ("-6", ["－6"], ["6"]),
    ("41", ["41。"], ["14。"]),
    (r"\frac{2}{7}", ["2／7"], ["7／2"]),
    (r"3\sin a\cos b", [r"3 \sin a \cdot \cos b"], [r"3 \sin b \cdot \cos a"]),
    (r"\ln 10", [r"\ln 2 + \ln 5"], [r"\ln 2 \cdot 5"]),
    (r"\ln 2 \ln 11", [r"\ln 2 \cdot \ln 11"], [r"\ln 22"]),
    (r"\text{9:45 a.m.}", [r"9:45 \text{ a.m.}", "9:45"], [r"9:45 \text{ p.m.}", "9:54"]),
    ("9:45", [r"\text{9:45 AM}"], [r"\text{9:54 AM}"]),
    ("6000000", [r"6 \text{ million people}", r"6 \text{ million}"],
     [r"6 \text{ billion people}", r"6 \text{ people}"]),
    ("6", [r"6 \text{ people}"], [r"6 \text{ million people}", r"6 \text{ million}"]),
    ("(1,4)(2,9)", ["(1,4),(2,9)"], ["(1,4),(2,8)", "(5,4)(2,9)"]),
    (r"(1,0)(2,-\frac{1}{3})", ["(1,0),(2,-1/3)"], [r"(5,0)(2,-\frac{1}{3})"]),
    ("e^{-2.5}", ["e^{-5/2}"], ["e^{-5/3}"]),
    ("1-e^{-1.2}", [r"1-\frac{1}{e^{6/5}}"], [r"1-\frac{1}{e^{5/6}}"]),
    (r"(-\infty,\infty)", [r"\text{All real numbers}"], [r"\text{All rational numbers}"]),
    ("19", ["19 miles per hour", "19 pounds", "19 people"], ["91 people"]),
    (r"\text{no solution}", [r"\text{there are no solutions}"], [r"\text{there are two solutions}"]),
    ("A", ["(A) 30"], ["(B) 30"]),
    ("30", ["(A) 30"], ["(A) 31"]),
    ("x=3, y=3", ["(3,3)", "y=3, x=3"], ["3", "x=3"]),
    (r"\frac{1}{5}", [r"\frac{1}{5} \text{ or } 0.2", r"x = \frac{1}{5} \text{ or } 0.2"], [r"0.2, 0.3"]),
    ("n(n+1)", ["n^2+n"], [r"\sum_{i=1}^{n} 2i+1"]),
    (r"\frac{n}{\gcd(n,k)}", [r"\frac{n}{\gcd(n,k)}", r"\frac{n}{\gcd(k,n)}"], [r"\frac{n}{\gcd(n,2k)}"]),
    ("g^{-1}(x)", ["g^{-1}(x)"], [r"\frac{1}{g(x)}"]),
    (r"\theta \in (0,1)", [r"(0,1)"], [r"\theta \in (0,9)"]),
    (r"(m,n) \in \{(1,5)\}", ["(1,5)"], [r"(m,n) \in \{(3,3)\}"]),
    (r"\$2,750", ["2750", r"2,750 \text{ dollars}"], ["€2,750", "£2750", r"2750 \text{ euros}"]),
    (r"6.5\,\Omega", ["6.5", r"6.5 \text{ ohms}", r"6.5\ \Omega"], [r"6.5 \text{ V}", r"6.5\,\mathrm{k}\Omega"]),
    ("214", ["**214**", r"\begin{array}{c} 214 \end{array}"], ["**241**"]),
    ("57",
     [r"\text{Therefore, the final answer is } 57.", r"\text{So there are } 57 \text{ ways}", r"\text{We get } 57"],
     [r"\text{It is not } 57", r"\text{At least one is } 57", r"\text{It is false that it is } 57"]),
    ("12", [r"12 \text{ (attained at } x = 3)", r"\text{The minimum value is } 12"],
     [r"3 \text{ (attained at } x = 12)"]),
    (r"\text{8:35 p.m.}", [r"8{:}35 \text{ pm}"], [r"8{:}35 \text{ am}"]),
    (r"\begin{pmatrix} 1/3 \\ 2/7 \end{pmatrix}", [r"\frac{1}{21} \begin{pmatrix} 7 \\ 6 \end{pmatrix}"],
     [r"\frac{1}{21} \begin{pmatrix} 6 \\ 7 \end{pmatrix}", r"\begin{pmatrix} 7 \\ 6 \end{pmatrix}"]),
    (r"(-\infty,-5) \cup (-5,\infty)", [r"\text{all real numbers except } -5"],
     [r"\text{all real numbers except } 5"]),
    (r"(0,1) \cup (1,\infty)",
     [r"\{x \mid x > 0, x \neq 1\}", r"x > 0 \text{ and } x \neq 1", r"(0,\infty) \setminus \{1\}"],
     ["x > 0", r"x \ge 0, x \neq 1", r"x > 0, x \ne 2", r"(0,\infty) \setminus \{-1\}"]),
    (r"(a,b,c) \in \{(1,2,3)\}", ["(1,2,3)", "(a,b,c) = (1,2,3)"], ["(c,b,a) = (1,2,3)", "(3,2,1)"]),
    (r"\text{(B)}\ \frac{3}{7}", ["B", r"\frac{3}{7}", r"\text{(B)}\ \frac{3}{7}"], [r"\text{(B)}\ \frac{7}{3}", "C"]),
    (r"\sqrt{14}", [r"\sqrt{14} \text{ (approximately } 3.74 \text{)}", r"\sqrt{14} \text{ or approximately } 3.742"],
     ["3.74", r"\text{approximately } 3.74", r"\sqrt{41} \text{ or approximately } 3.74"]),
    ("100", [r"100\textsuperscript{th}", r"\text{the } 100^{\text{th}} \text{ customer}"],
     [r"101\textsuperscript{th}"]),
    ("[-1,6]", ["［-1，6］"], ["［-1，6）"]),
    (r"48^\circ", ["48^o", "48º"], ["84º", "48^p"]),
    ("330", ["{}_{11}C_4"], ["{}_{11}C_5"]),
    (r"\text{Yes}", [r"\text{YES}"], [r"\text{NO}"]),
    (r"\text{neither}", [r"\text{neither even nor odd}"], [r"\text{odd}"]),
    (r"\text{Sunday}", [r"\text{on Sunday}"], [r"\text{on Monday}"]),
    (r"\theta \in (0,2)", ["(0,2)"], [r"\theta \in \{0,2\}", r"\{0,2\}"]),
    ("14", ["14"], [r"14 \text{ factorial}", r"14 \text{ mod } 5", r"14 \text{ is wrong}"]),
    (r"\left\lfloor \frac{n}{3} \right\rfloor", [r"\lfloor n/3 \rfloor"], [r"\left\lfloor \frac{n}{4} \right\rfloor"]),
    ("4", [r"\text{Yes, } n=4", r"\text{Yes}, 4"], [r"\text{No, } n=4", r"\text{Yes}, 5"]),
    (r"\cot x", [r"\cotx", r"\frac{\cos x}{\sin x}"], [r"\coty"]),
    (r"\frac{\pi}{6}+\pik", [r"\frac{\pi}{6} + \pi k"], [r"\frac{\pi}{6} + 2\pi k"]),
    (r"\frac{1}{2}(\exp{a*t}+\exp{-a*t})", [r"\cosh(at)"], [r"\sinh(at)"]),
    ("SRMC=LRMC", [r"\text{SRMC} = \text{LRMC}"], [r"\text{SRMC} = \text{SRAC}"]),
    (r"\frac{2}{3}\frac{C}{S}", [r"MRS_{S,C} = \frac{4}{6} \cdot \frac{C}{S} = \frac{2}{3} \cdot \frac{C}{S}"],
     [r"MRS_{S,C} = \frac{3}{2} \cdot \frac{C}{S}"]),
    (r"\frac{1}{LCs^{2}+RCs+1}", [r"\dfrac{V_o(s)}{V_i(s)} = \dfrac{1}{L C s^{2} + R C s + 1}"],
     [r"\dfrac{V_o(s)}{V_i(s)} = \dfrac{s}{L C s^{2} + R C s + 1}", r"\dfrac{V_o(s)}{2} = \dfrac{1}{LCs^2+RCs+1}"]),
    ("7,14,18", ["Rayna: 7, Qing: 14, Paolo: 18"], ["Rayna: 7, Qing: 18, Paolo: 15"]),
    ("5.5", [r"5\frac12", "11/2"], [r"5\frac13"]),
    (r"c_1 e^{x} + c_2 e^{-4x}", [r"C_1 e^{x} + C_2 e^{-4x}"],
     [r"C_1 e^{x} + C_1 e^{-4x}", r"C_1 e^{x} + c_2 e^{4x}"]),
    (r"(-\infty,1) \cup (8,\infty)", [r"x < 1 \text{ or } x > 8"], [r"x < 1 \text{ and } x > 8"]),
    (r"n^3 \text{ if } n \text{ is even}", ["n^3"], [r"n^3 \text{ unless } n \text{ is even}"]),
    ("|z|^2", ["|z|^2"], ["z^2"]),
    ("64 miles per hour", ["64", "64 mph", r"64\text{ miles/hour}"], ["64 km/h", "64 miles per minute"]),
    (r"x^2-9", ["(x-3)(x+3) = x^2 - 9"], ["(x-3)(x+3) = x^2 - 3"]),
    (r"\frac{\sqrt{2}}{2}", [r"\frac{\sqrt{2}}{2} \text{ or } \frac{1}{\sqrt{2}}"],
     [r"\frac{\sqrt{2}}{2} \text{ or } \frac{1}{\sqrt{3}}", r"\frac{\sqrt{2}}{2} \text{ or } \sqrt{2}"]),
    ("14", ["14.0"], [r"14 \text{ tenths}", r"14 \text{ halves}"]),
    (r"\angle ABC", [r"\angle{ABC}", r"\angle CBA"], [r"\angle{ACB}"]),
    (r"(\alpha,\beta)=(1,\sqrt{5})", [r"(1,\sqrt{5})"], [r"(\alpha,\beta)=(1,\sqrt{7})"]),
    (r"\text{Yes}", [r"\text{True}", r"\text{yes}"], [r"\text{False}"]),
    (r"\text{True}", [r"\text{Yes}"], [r"\text{No}"]),
    ("BCD", ["B,C,D", r"\text{D and B and C}"], ["B,C", "A,B,C,D"]),
    ("0", ["0"], ["p(0)", "3y(0)"]),
    ("2y(0)+1", ["1+2y(0)"], ["1"]),
    (r"\frac{dy}{dx}", [r"\frac{dy}{dx}"], [r"\frac{y}{x}"]),
    ("-5*t*cos(2*t)+a*sin(2*t)+b*cos(2*t)", [r"-5t\cos(2t)+a\sin(2t)+b\cos(2t)"], [r"-4t\cos(2t)+a\sin(2t)"]),
    (r"-2 \text{ or } -12", ["-12, -2", r"-2 \text{ and } -12"], ["-2", "2, 12"]),
    ("AB=2CD", ["AB = 2CD"], ["2CD"]),
    ("AB=BC=CA", ["AB = BC = CA"], []),
    ("5", [r"\text{Hence } x = 5"], [r"\text{So } x = 5 \text{ or } x = 3"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("gold", "answer", "score"),
    [
        (gold, one, score)
        for gold, *sides in AS_WRITTEN
        for score, side in zip((1, 0), sides, strict=True)
        for one in side
    ],
)
def test_answers_as_models_write_them(gold, answer, score):
    verdict = verify(rf"\boxed{{{answer}}}", gold)
    assert verdict.score == score, verdict


# Every value in every wrapper

VALUES = {  # a gold, and another value near it
    "5": "6", "-5": "5", "7350": "7530", r"\frac{3}{4}": r"\frac{4}{3}", r"-\frac{3}{4}": r"\frac{3}{4}",
    "2.5": "2.6", "-0.5": "0.5", r"2\sqrt{3}": r"3\sqrt{2}", r"-\sqrt{2}": r"\sqrt{2}", r"3\pi": r"2\pi",
    "3-4i": "3+4i", "-2i": "2i",
    r"\frac{d}{d+1}": r"\frac{d}{d-1}", r"\frac{d(d+1)}{d-1}": r"\frac{d(d+1)}{d+2}", "x^2-1": "x^2+1", "-n": "n",
    "A": "C", "B": "C", "d": "b", "(1,-2)": "(-2,1)", "2, -3": "2, 3", "-2, 12": "-2, -12", r"\{-1, 4\}": r"\{1, 4\}",
    r"50\%": r"60\%", "[-1, 2)": "[-1, 2]",
}  # fmt: skip
WRAPPERS = {
    "unit": [r"<> \text{ cm}", r"<>\,\mathrm{kJ}", r"<> \text{ degrees}", r"<> \text{ dollars}"],
    "words": [r"\text{The answer is } <>", r"<> \text{ books}", r"\text{So there are } <> \text{ ways}",
              r"\text{We get } <>", r"\text{The final answer is }<>\text{.}"],
    "bold": [r"\mathbf{<>}", r"\boldsymbol{<>}", "**<>**", r"\color{red}{<>}", r"\Large <>", "$<>$",
             r"\left. <> \right."],
    "name": ["y = <>", r"\text{Area} = <>", "AB = <>", r"\angle ABC = <>", "f(t) = <>", "= <>", "Answer: <>",
             r"\theta = <>", "S_{n} = <>"],
    "condition": [r"<>,\ n\ge1", r"<> \quad (n \ge 1)", r"<> \text{ for } n \ge 1", r"<> \text{ at } x = 7",
                  r"<>, \quad k \in \mathbb{Z}", r"<> \text{ where } k>0", r"<> \text{ (for } n \ge 1)"],
    "choice": [r"\text{(C) } <>", r"\text{A. } <>", "A) <>", "(A) <>", r"\text{A) }<>", r"\textbf{A. }<>",
               r"\text{E: } <>"],
    "derivation": ["AB = BC = <>", r"x = \frac{a}{b} = <>", r"\sin A = \frac{BC}{AB} = <>", r"\text{So } y = <>",
                   r"y + 1 = 3k \Rightarrow y = <>", r"\text{Since } a = 7\text{, we get } y = <>",
                   r"S = \frac12 ab = <>"],
}  # fmt: skip
# A percentage has its unit, and a letter behind another letter is another choice.
NO_CELL = {("unit", r"50\%"), ("words", r"50\%"), *itertools.product(["choice"], ["A", "B"])}


@pytest.mark.parametrize(
    ("kind", "wrapper"), [(kind, wrapper) for kind, wrappers in WRAPPERS.items() for wrapper in wrappers]
)
def test_every_value_in_every_wrapper(kind, wrapper):
    cells = [cell for cell in VALUES.items() if (kind, cell[0]) not in NO_CELL]
    right = {gold: verify(boxed(wrapper.replace("<>", gold)), gold).score for gold, _ in cells}
    wrong = {gold: verify(boxed(wrapper.replace("<>", other)), gold).score for gold, other in cells}
    assert {gold for gold, score in right.items() if score != 1.0} == set()
    assert {gold for gold, score in wrong.items() if score != 0.0} == set()
