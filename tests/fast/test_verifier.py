"""Verdicts: several golds, the thinking rule, the graders."""

from collections import Counter

import pytest

from real_openrlhf.rewards.verifier import verdict
from real_openrlhf.rewards.verifier.verdict import FAILED, RIGHT, WRONG, verify


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer}}}."


@pytest.mark.parametrize(
    "label, answer, score",
    [
        ('["0.01", "0.02"]', "0.02", 1.0),
        ('["0.01", "0.02"]', "0.03", 0.0),
        (["\\frac{x}{2}", "2x"], "x+x", 1.0),
        ("[0, 1]", "0", 0.0),
        ("[0, 1]", "[0,1]", 1.0),
        (142.0, "142", 1.0),
        (7, "7", 1.0),
    ],
)
def test_any_gold_of_a_label_counts(label, answer, score):
    assert verify(boxed(answer), label).score == score


@pytest.mark.parametrize("label", ["", None, [], True, {"gold": 1}])
def test_a_label_without_a_gold_is_no_verdict(label):
    verdict = verify(boxed("7"), label)
    assert verdict.ignored and verdict.reason == "no_gold"


def test_a_gold_that_cannot_be_read_is_no_verdict_unless_the_text_agrees():
    gold = "f(x)=ax+b where b is any integer and \\mho(a)=0"
    assert verify(boxed(gold), gold).score == 1.0
    other = verify(boxed("f(x)=ax+c where c is any integer and \\mho(c)=1"), gold)
    assert other.ignored and other.reason == "gold_unparsed"
    assert verify(boxed("x+x"), [gold, "2x"]).score == 1.0


def test_the_thinking_rule():
    assert verify("\\boxed{7}", "7", "optional").score == 1.0
    assert verify("\\boxed{7}", "7", "required") == (0.0, "unfinished_thinking")
    assert verify("\\boxed{7}</think> so \\boxed{8}", "8", "required").score == 1.0
    assert verify("\\boxed{7}</think> so 7", "7", "required") == (0.0, "no_answer")


def test_never_an_exception_whatever_it_is_given():
    for response in (None, 7, b"\\boxed{7}", ["\\boxed{7}"]):
        assert verify(response, "7").ignored
    assert verify(boxed("\ud800"), "7").score == 0.0


def test_every_reason_is_documented_and_counted():
    before = Counter(verdict.counts())
    for response in (boxed("7"), boxed("8"), "7", "<think>"):
        verify(response, "7")
    assert Counter(verdict.counts()) - before == Counter(exact=1, different=1, no_answer=1, unfinished_thinking=1)
    assert set(verdict.counts()) <= {*RIGHT, *WRONG, *FAILED}


def test_the_disco_grader_follows_the_rules_of_the_baselines():
    def disco(response, label="\\frac{1}{2}"):
        return verify(response, label, "required", "disco").score

    assert disco("x</think>\\boxed{1/2}") == 1.0
    assert disco("x</think>\\boxed{\\dfrac{1}{2}}") == 1.0
    assert disco("\\boxed{1/2}") == 0.0  # no </think>
    assert disco("x</think>\\boxed{2/4}") == 0.0  # it refuses fractions that are not reduced
    assert disco("x</think>\\boxed {1/2}") == 0.0  # and a box with a space
    assert disco("x</think>\\boxed{1/2}</think>\\boxed{3}") == 1.0  # it reads up to the second </think>
    assert disco("x</think>\\boxed{3,5}", "5,3") == 0.0  # order counts
    assert disco("x</think>\\boxed{0.02}", '["0.01", "0.02"]') == 1.0
    assert verify("x</think>\\boxed{9**9**9**9}", "x", "required", "disco").reason == "timeout"


def test_the_log_spells_out_what_a_terminal_would_obey(caplog):
    assert verify("\\boxed{\\lim_{x\\to 0}}", "(<\x1b[2J\ud800").reason == "gold_unparsed"
    assert "\\x1b[2J" in caplog.text and "\\ud800" in caplog.text
    assert caplog.text.strip().replace("\n", "").isprintable() and caplog.text.encode()
