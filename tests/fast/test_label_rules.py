"""Labels by a function in the user's own file: the examples by hand, and what is refused before a run."""

from pathlib import Path

import pytest

from real_openrlhf.algorithm.formulas import OBJECTIVES
from real_openrlhf.hooks.controller.label_rules import Rollout, apply, find_rule, problems

RULES = Path(__file__).parents[2] / "examples" / "labels" / "rules.py"


def refusals(name, uniform="drop", objective="real"):
    return list(problems(name, uniform, OBJECTIVES[objective]))


def labelled(rule, rewards, tokens=None):
    tokens = tokens or [5] * len(rewards)
    rows = zip(rewards, tokens, range(len(rewards)), strict=True)
    return apply(find_rule(f"{RULES}:{rule}"), [Rollout(r, n, False, "1+1=", f"it is {i}") for r, n, i in rows])


def test_the_examples_by_hand():
    assert labelled("default", [1.0, 0.0, 0.5, 0.51]) == [1, 0, 0, 1]
    assert labelled("best_half", [0.1, 0.4, 0.2, 0.9]) == [0, 1, 0, 1]
    assert labelled("best_half", [0.1, 0.4, 0.2]) == [0, 1, None]
    assert labelled("best_half", [1.0, 1.0]) == [None, None]
    assert labelled("short_and_right", [1, 1, 1, 0], [4, 8, 9, 90]) == [1, 1, None, 0]
    assert labelled("short_and_right", [0, 0]) == [0, 0]
    assert labelled("positives_only", [1.0, 0.0]) == [1, None]
    coins = labelled("random_labels", [1.0] * 400)
    assert 150 < sum(coins) < 250 and coins == labelled("random_labels", [0.0] * 400)  # no reward in it


@pytest.mark.parametrize("rule", ["default", "best_half", "short_and_right", "random_labels"])
def test_the_examples_are_let_through(rule):
    assert refusals(f"{RULES}:{rule}") == []


def test_a_rule_of_one_side_needs_groups_of_one_side():
    (refusal,) = refusals(f"{RULES}:positives_only")
    assert refusal.endswith("Use --algo.real.uniform_groups keep") and "positives and negatives" in refusal
    assert refusals(f"{RULES}:positives_only", "keep") == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return [1]", "it returns 1 labels for 4 rollouts. Return one for each"),
        ("return [r.reward for r in rollouts]", "it returns 0.25. Use 1 (positive), 0 (negative) or None (ignored)"),
        ("return rollouts[0].score", "it raises AttributeError: 'Rollout' object has no attribute 'score'. Change"),
        ("return [None for _ in rollouts]", "it ignores all rollouts of 5 groups. Let some count"),
        ("import random; return [random.random() for _ in rollouts]", "Use 1 (positive)"),
        (
            "c.append(1); return [int(len(c) > 5)] * len(rollouts)",
            "differently",
        ),
    ],
)
def test_what_cannot_train_is_refused_in_one_line(tmp_path, body, reason):
    (tmp_path / "mine.py").write_text(f"c = []\ndef rule(rollouts):\n    {body}\nnumber = 3\n")
    (refusal,) = refusals(f"{tmp_path}/mine.py:rule")
    assert refusal.startswith(f"--algo.real.labels {tmp_path}/mine.py:rule: ") and reason in refusal
    assert "\n" not in refusal


@pytest.mark.parametrize(
    ("name", "reason"),
    [("rule", "names no file"), ("{}/none.py:f", "cannot be read"), ("{}/mine.py:number", "'number' is no function")],
)
def test_a_file_without_a_rule_is_refused(tmp_path, name, reason):
    (tmp_path / "mine.py").write_text("number = 3\n")
    assert reason in refusals(name.format(tmp_path))[0]
