"""Text of others is data; and the reward file as OpenRLHF uses it."""

import importlib.util
import io
import json
import math
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import invented_runs as invented
import pytest
import untrusted_text as untrusted
from hypothesis import HealthCheck, Phase, given, settings

import real_openrlhf.rewards
from real_openrlhf.base.errors import exit_code, plain


@pytest.mark.parametrize("holds", untrusted.PROPERTIES, ids=lambda holds: holds.__name__)
def test_property(holds):
    check = settings(
        max_examples=25,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    check(given(*untrusted.PROPERTIES[holds])(holds))()


def test_a_terminal_is_shown_controls_and_does_not_get_them():
    assert plain("a\x1b[2Jb\x07\x9b\u202e\ud800\tc\n") == "a\\x1b[2Jb\\x07\\x9b\\u202e\\ud800\tc\n"
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        assert exit_code("x", lambda: print("\x1b]0;owned\x07") or 0) == 0
    assert said.getvalue() == "\\x1b]0;owned\\x07\n"


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "eval/results.json"])
def test_a_pipe_in_a_run_folder_is_not_waited_for(tmp_path, refused, name):
    folder = invented.write_run(tmp_path, "real", 1)
    (folder / "eval").mkdir()
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert "not a regular file" in refused("report", folder, "--out", tmp_path / "out")


# The reward file as OpenRLHF uses it: loaded by its path, called in a thread for one response.


PATH = Path(real_openrlhf.rewards.__file__).parent / "math_reward.py"
NOISY = Path(__file__).parents[2] / "examples" / "labels" / "noisy_reward.py"
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


def test_scores_are_labels(load):
    reward = load()
    right, wrong, none = (
        reward([PROMPT + response + "<|im_end|>"], [PROMPT], ["7"])
        for response in ("It is \\boxed{7}.", "It is \\boxed{8}.", "It is 7.")
    )
    assert (right["rewards"], right["scores"]) == (1.0, 1.0)
    assert (wrong["rewards"], wrong["scores"]) == (0.0, 0.0)
    assert (none["rewards"], none["scores"]) == (0.0, 0.0)
    assert none["extra_logs"]["verifier/no_answer"] == 1.0 and right["extra_logs"]["verifier/no_answer"] == 0.0
    assert right["extra_logs"].keys() == wrong["extra_logs"].keys() == none["extra_logs"].keys()
    assert all(isinstance(value, float) for value in right["extra_logs"].values())


def test_no_verdict_is_nan_and_never_a_reward(load):
    result = load()([PROMPT + "\\boxed{7}"], [PROMPT], [""])
    assert result["rewards"] == 0.0 and math.isnan(result["scores"])
    assert result["extra_logs"]["verifier/ignored_no_gold"] == 1.0


def test_the_box_in_the_prompt_is_no_answer(load):
    reward = load()
    prompt = PROMPT.replace("\\boxed{}", "\\boxed{7}")
    assert reward([prompt + "I do not know"], [prompt], ["7"])["scores"] == 0.0


def test_a_prompt_that_the_tokenizer_changed_is_found_by_its_end(load):
    reward = load()
    long = "word " * 100 + PROMPT
    cut = long[50:]
    assert reward([cut + "\\boxed{7}"], [long], ["7"])["scores"] == 1.0
    lost = reward(["something else \\boxed{7}"], [long], ["7"])
    assert math.isnan(lost["scores"]) and lost["extra_logs"]["verifier/ignored_prompt_not_found"] == 1.0


@pytest.mark.parametrize(
    "rule, ending, response, score",
    [
        ("auto", "<think>\n", "\\boxed{7}", 0.0),
        ("auto", "<think>\n", "hm</think>\\boxed{7}", 1.0),
        ("auto", "", "\\boxed{7}", 1.0),
        ("required", "", "\\boxed{7}", 0.0),
        ("optional", "<think>\n", "\\boxed{7}", 1.0),
    ],
)
def test_thinking_must_be_finished_where_the_prompt_begins_it(load, rule, ending, response, score):
    prompt = PROMPT + ending
    assert load(REAL_THINK=rule)([prompt + response], [prompt], ["7"])["scores"] == score


def test_the_disco_grader_by_environment(load):
    reward = load(REAL_GRADER="disco")
    assert reward([PROMPT + "\\boxed{2/4}"], [PROMPT], ["\\frac{1}{2}"])["scores"] == 0.0
    assert reward([PROMPT + "\\boxed{1/2}"], [PROMPT], ["\\frac{1}{2}"])["scores"] == 1.0


def test_math_verify_by_environment(load):
    """It reads an answer without a box, which ours does not."""
    reward = load(REAL_GRADER="math_verify")
    assert reward([PROMPT + "so it is $0.5$"], [PROMPT], ["\\frac{1}{2}"])["scores"] == 1.0
    assert reward([PROMPT + "\\boxed{2}"], [PROMPT], ["\\frac{1}{2}"])["scores"] == 0.0


def test_an_unknown_option_stops_the_run_at_its_start(load):
    with pytest.raises(ValueError, match="REAL_GRADER=mathd"):
        load(REAL_GRADER="mathd")


@pytest.mark.parametrize("share", ["right-to-wrong", "wrong-to-right"])
def test_noise_flips_its_share_of_one_side_and_spares_plain_labels(load, tmp_path, monkeypatch, share):
    questions, noisy = tmp_path / "questions.jsonl", tmp_path / "noisy.jsonl"
    questions.write_text(json.dumps({"prompt": PROMPT, "label": "7"}) + "\n")
    monkeypatch.setattr(sys, "argv", ["noisy_reward.py", str(questions), str(noisy), f"--{share}", "0.3"])
    module_of(NOISY).main()
    reward, label = load(NOISY), json.loads(noisy.read_text())["label"]

    def verdicts(answer, label):
        return [reward([f"{PROMPT}{n} \\boxed{{{answer}}}"], [PROMPT], [label])["scores"] for n in range(1000)]

    right, wrong = verdicts(7, label), verdicts(8, label)
    flipped, kept = (1000 - sum(right), sum(wrong)) if share == "right-to-wrong" else (sum(wrong), 1000 - sum(right))
    assert 250 < flipped < 350 and kept == 0
    assert (right, wrong) == (verdicts(7, label), verdicts(8, label))
    assert set(verdicts(7, "7")) == {1.0} and set(verdicts(8, "7")) == {0.0}
    assert math.isnan(reward([PROMPT + "\\boxed{7}"], [PROMPT], [json.dumps({"gold": ""})])["scores"])
