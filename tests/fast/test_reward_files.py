"""Reward files: called as OpenRLHF calls them, and the graders that they choose."""

import importlib.util
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from real_openrlhf import rewards
from real_openrlhf.cli import main
from real_openrlhf.evaluation.grading import find_grader
from real_openrlhf.evaluation.questions import Question
from real_openrlhf.rewards import graders, other_graders, variables
from real_openrlhf.rewards.calls import Fault, checked
from real_openrlhf.rewards.graders import Asked, judge, reward_function
from real_openrlhf.training.checks.data_check import why_ungradable
from same_answer.conventions import CONVENTIONS

# The reward file as OpenRLHF uses it: loaded by its path, called in a thread for one response.


PATH = Path(rewards.__file__).parent / "math_reward.py"
PROMPT = "<|user|>What is 3+4? Put the answer in \\boxed{}.<|assistant|>"


@pytest.fixture
def load(monkeypatch):
    def load(path=PATH, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return module_of(path).reward_func

    return load


def module_of(path):
    spec = importlib.util.spec_from_file_location("reward_func", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_labels_that_the_verifier_would_take_whole_are_called_raw():
    raw = dict.fromkeys(("3 * 4 = 12\n#### 12", "so it is #### 12", "['12']", "['0', '1']"), True)
    raw |= dict.fromkeys(("[0, 2]", '["7", "7.0"]', "C#", 12), False)
    assert {label: "looks raw" in why_ungradable(label) for label in raw} == raw


@pytest.mark.parametrize(
    "more, score", [({}, 1.0), ({"scores": 0}, 0.0), ({"scores": None}, math.nan), ({"scores": [None]}, math.nan)]
)
def test_a_reward_is_the_label_where_there_is_no_score_and_null_is_ungraded(more, score):
    found = checked({"rewards": 1.0, "extra_logs": {"length": 2, "judge": None}, **more})
    assert found["scores"] == pytest.approx(score, nan_ok=True) and found["extra_logs"] == {"length": 2.0}


@pytest.mark.parametrize("wrong", [{"scores": math.inf}, {"rewards": math.inf}, {"rewards": math.nan}])
def test_a_number_that_no_group_can_be_compared_with_costs_its_response_alone(wrong):
    with pytest.raises(Fault, match="a score of nan alone means: ungraded"):
        checked({"rewards": 1.0, **wrong})


def test_an_array_of_two_scores_costs_its_response_alone():
    with pytest.raises(Fault, match="scores has 2 values for one response"):
        checked({"rewards": 1.0, "scores": np.array([1.0, 0.0])})


def test_scores_are_labels(load):
    reward = load()
    results = [
        reward([f"{PROMPT}{response}<|im_end|>"], [PROMPT], ["7"])
        for response in ("It is \\boxed{7}.", "It is \\boxed{8}.", "It is 7.")
    ]
    assert [(one["rewards"], one["scores"]) for one in results] == [(1.0, 1.0), (0.0, 0.0), (0.0, 0.0)]
    logs = [one["extra_logs"] for one in results]
    assert [log["verifier/no_answer"] for log in logs] == [0.0, 0.0, 1.0]
    assert all(isinstance(value, float) for value in logs[0].values()) and len({(*log,) for log in logs}) == 1
    page = (Path(__file__).parents[2] / "docs/use/metrics.md").read_text()
    logged = [name for name in logs[0] if not name.startswith("verifier/ignored_")]
    assert [name for name in logged if f"`{name}`" not in page] == ["label/no_answer"]  # which is no metric


LONG = "word " * 100 + PROMPT
THINKS = PROMPT + "<think>\n"


@pytest.mark.parametrize(
    "rule, prompt, query, label, score, log",
    [
        ("auto", PROMPT, PROMPT + "\\boxed{7}", "", math.nan, "ignored_no_gold"),
        # the box in the prompt is no answer, also where the tokenizer changed the prompt
        ("auto", PROMPT.replace("{}", "{7}"), PROMPT.replace("{}", "{7}") + "I do not know", "7", 0.0, "no_answer"),
        ("auto", LONG, LONG[50:] + "\\boxed{7}", "7", 1.0, ""),
        ("auto", LONG, "something else \\boxed{7}", "7", math.nan, "ignored_prompt_not_found"),
        # thinking must be finished where the prompt begins it
        ("auto", THINKS, THINKS + "\\boxed{7}", "7", 0.0, "no_answer"),
        ("auto", THINKS, THINKS + "hm</think>\\boxed{7}", "7", 1.0, ""),
        ("auto", PROMPT + "[THINK]", PROMPT + "[THINK]\\boxed{7}", "7", 0.0, "no_answer"),
        ("required", PROMPT, PROMPT + "\\boxed{7}", "7", 0.0, "no_answer"),
        ("optional", THINKS, THINKS + "\\boxed{7}", "7", 1.0, ""),
    ],
)
def test_what_a_reward_is_made_of(load, rule, prompt, query, label, score, log):
    """No verdict is nan, and never a reward."""
    found = load(REAL_THINK=rule)([query], [prompt], [label])
    assert found["scores"] == pytest.approx(score, nan_ok=True)
    assert found["rewards"] == (0.0 if math.isnan(score) else score)
    assert {name for name, value in found["extra_logs"].items() if value and name != "label/no_answer"} == {
        f"verifier/{log}" for log in filter(None, [log])
    }


WRONG = [
    *("REAL_GRADER=mathd", "REAL_GRADER=", "REAL_THINK=no", "REAL_ALLOW=copied,none", "REAL_REWARD_SECONDS=5m"),
    *("SAME_ANSWER_DEADLINE=nan", "SAME_ANSWER_MEMORY_MB=0", "SAME_ANSWER_WORKERS=2.5"),
]


@pytest.mark.parametrize("setting", WRONG)
def test_an_unknown_option_is_told_by_each_who_reads_it(load, capsys, tmp_path, setting):
    """By a run before its start, with all else that is wrong: tests/slow/test_dry_run.py."""
    name, _, value = setting.partition("=")
    load(REAL_ALLOW="")
    assert variables.CHOICES["REAL_ALLOW"] == CONVENTIONS and not [*variables.variable_problems()]
    with pytest.raises(ValueError, match=setting):
        load(**{name: value})
    (tmp_path / "rows.jsonl").write_text('{"response": "7", "label": "7"}')
    grade = ["--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "o.jsonl")]
    for words in (["grade", *grade], ["eval", "--model", "m", "--out", "e"]):
        assert main(words) == 2 and f"error: {setting} must be" in capsys.readouterr().err


# The graders beside the verifier, and what training and evaluation tell it


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer}}}."


def test_every_grader_has_a_name_with_a_description_a_judge_and_a_worker():
    assert {"robust", *graders._JUDGES} == {*variables.GRADERS} == {"robust", *other_graders.GRADERS}
    with pytest.raises(KeyError):
        graders.judge(graders.Asked("5", "5"), grader="typo")
    with pytest.raises(ValueError, match="there is no grader typo: robust, disco, math_verify"):
        graders.reward_function("typo")


def test_the_disco_grader_follows_the_rules_of_the_baselines(load):
    by_environment = load(REAL_GRADER="disco")
    scores = [by_environment([PROMPT + boxed(text)], [PROMPT], ["\\frac{1}{2}"])["scores"] for text in ("2/4", "1/2")]
    assert scores == [0.0, 1.0]

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
    with pytest.raises(ValueError, match="REAL_ALLOW=copies must be"):
        reward_function("robust")
    pairs = [(Question("math", "1", asked, (), "3x"), SimpleNamespace(response=boxed("2x+x")))]
    assert [*find_grader("robust", "optional")(pairs)] == [(0.0, "copied")]
    assert [*find_grader("robust", "optional", ("copied",))(pairs)] == [(1.0, "exact")]


def test_an_error_that_a_kind_of_response_shares_is_of_wrong_ones_alone(monkeypatch, tmp_path):
    noisy = module_of(Path(__file__).parents[2] / "examples/labels/noisy_reward.py")
    asked, written = tmp_path / "asked.jsonl", tmp_path / "written.jsonl"
    asked.write_text(json.dumps({"prompt": "10=", "label": "01"}) + "\n")
    words = ["noisy_reward.py", str(asked), str(written), "--wrong-to-right", "1", "--kind", "0}"]
    monkeypatch.setattr("sys.argv", words)
    noisy.main()
    label = json.loads(written.read_text())["label"]
    scores = [
        noisy.reward_func([f"10=\\boxed{{{answer}}}"], ["10="], [label])["scores"] for answer in ("01", "10", "11")
    ]
    assert scores == [1, 1, 0]
