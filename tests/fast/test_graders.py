"""The graders beside the verifier, and what training and evaluation tell it."""

from types import SimpleNamespace

import pytest

from real_openrlhf.evaluation.grading import find_grader
from real_openrlhf.evaluation.tasks import Task
from real_openrlhf.rewards.graders import Asked, judge, reward_function


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer}}}."


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
