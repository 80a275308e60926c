"""Reward files: tried by `real-openrlhf reward`, called as OpenRLHF calls them, and the graders that they choose."""

import contextlib
import importlib.util
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from real_openrlhf import rewards
from real_openrlhf.base import reward_variables
from real_openrlhf.cli import main
from real_openrlhf.data.problems import without_verdict
from real_openrlhf.evaluation.grading import find_grader
from real_openrlhf.evaluation.tasks import Task
from real_openrlhf.rewards.graders import Asked, judge, reward_function
from real_openrlhf.verifier.conventions import CONVENTIONS

# `real-openrlhf reward`: shipped files are right, and each fault of a broken one is named.

SHIPPED = Path(rewards.__file__).parent
HEAD = r"""
import itertools, re
turns = itertools.count()
def reward_func(queries, prompts, labels):
    query, label = queries[0], labels[0]
    found = re.findall(r"boxed{(\w+)}", query)
"""
GOOD = HEAD + "    return {'rewards': float(found[-1:] == [label])}\n"
BROKEN = {
    "broken.py cannot be loaded: line 1, ZeroDivisionError": "1 / 0\n" + GOOD,
    "it fails (raises) on empty: IndexError": HEAD + "    return {'rewards': float(found[-1] == label)}",
    "it fails (no_reward) on empty": HEAD + "    return [1.0]",
    "it calls these right: empty": HEAD + "    return {'rewards': 1.0}",
    "it does not read the label: 24 of 24": HEAD + "    return {'rewards': float(bool(found))}",
    "expected answers wrong, in a box": HEAD + "    return {'rewards': float('@@@@ ' + label in query)}",
    "its rewards are all 1, and": HEAD + "    return {'rewards': 1, 'scores': float(found[-1:] == [label])}",
    "its rewards are no higher for right answers": HEAD
    + "    return {'rewards': -float(found[-1:] == [label]), 'scores': float(found[-1:] == [label])}",
    "differently called again": HEAD + "    return {'rewards': float(found[-1:] == [label] and next(turns) % 7 > 0)}",
    "no verdict on 100% of them": HEAD + "    return {'rewards': 0.0, 'scores': float('nan')}",
}


def told(capsys, *words) -> tuple[int, str]:
    code = main(["reward", *map(str, words)])
    return code, capsys.readouterr().out


def test_the_files_that_come_with_the_package(capsys, tmp_path):
    code, said = told(capsys, SHIPPED / "math_reward.py")
    assert code == 0 and "WRONG" not in said and "24 of 24 expected answers are right" in said, said


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_refused_with_its_fault(capsys, caplog, tmp_path, fault):
    (tmp_path / "good.py").write_text(GOOD)
    assert told(capsys, tmp_path / "good.py")[0] == 0
    (tmp_path / "broken.py").write_text(BROKEN[fault])
    code, said = told(capsys, tmp_path / "broken.py")
    assert code == 2 and fault in said, said
    assert "asyncio" not in caplog.text  # no traceback of the calls beside the one that failed


FORMAT_AND_ANSWER = "    return {'rewards': 0.1 * ('boxed{' in query) + float(found[-1:] == [label])}\n"


def test_scores_other_than_0_and_1_are_told_with_the_flag_that_reads_them(capsys, tmp_path):
    """As of the commonest reward: a little for the format, and one for the answer."""
    (tmp_path / "mine.py").write_text(HEAD + FORMAT_AND_ANSWER)
    code, said = told(capsys, tmp_path / "mine.py")
    flag = "--algo.real.label_threshold 0.6"
    assert code == 0 and f"ok     its scores are 0, 0.1, 1.1: REAL needs {flag};" in said, said
    assert said.splitlines()[-1] == f"use it: real-openrlhf train --reward.remote_url {tmp_path}/mine.py {flag}"


OTHER_TRAINERS = {
    "verl": "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
    "    return float(r'\\boxed{' + ground_truth + '}' in solution_str)\n",
    "TRL": "def accuracy(completions, answer, **kwargs):\n"
    "    return [float(r'\\boxed{' + one + '}' in text) for text, one in zip(completions, answer)]\n",
}


@pytest.mark.parametrize("whose", OTHER_TRAINERS)
def test_a_reward_function_of_another_trainer_is_wrapped_as_the_message_says(capsys, tmp_path, whose):
    file = tmp_path / "theirs.py"
    file.write_text(OTHER_TRAINERS[whose])
    code, said = told(capsys, file)
    assert code == 2 and f"is a function for {whose}: wrap it as `" in said, said
    file.write_text(f"{OTHER_TRAINERS[whose]}\n\n{said.partition('wrap it as `')[2].partition('`')[0]}\n")
    code, said = told(capsys, file)
    assert code == 0 and "24 of 24 expected answers are right" in said, said


@pytest.mark.parametrize(
    "body, expected",
    [
        ("import os; os._exit(3)", "it fails (exits) on empty: it called exit(3)"),
        ("import time; time.sleep(9)", "no reward in 0.2 s; a run's limit, REAL_REWARD_SECONDS, is 0.2"),
    ],
)
def test_a_function_that_ends_its_process_or_hangs_is_named(capsys, tmp_path, monkeypatch, body, expected):
    monkeypatch.setenv("REAL_REWARD_SECONDS", "0.2")
    (tmp_path / "mine.py").write_text(f"def reward_func(queries, prompts, labels):\n    {body}\n")
    code, said = told(capsys, tmp_path / "mine.py")
    assert code == 2 and expected in said, said


LABELS = {  # of 12: the row's label, what says so, and how a function reads it
    "raw": ("3 * 4 = 12\n#### 12", "#### 12' looks raw: write the answer alone", "labels[0].rpartition('#### ')[2]"),
    "a number": (12, "a run passes labels as the data has them, such as 12, no text: read these", "str(labels[0])"),
    "a list": (["12"], "such as ['12'], no text: read these", "labels[0][0]"),
    "in a CSV file": (12, "such as 12, no text", "str(labels[0])"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_reach_the_function_as_in_a_run_and_answers_are_those_of_a_model(capsys, tmp_path, kind):
    label, said, read = LABELS[kind]
    rows = tmp_path / ("rows.csv" if "CSV" in kind else "rows.jsonl")
    rows.write_text("prompt,label\n3*4,12\n" if "CSV" in kind else json.dumps({"prompt": "3*4", "label": label}))
    (tmp_path / "text.py").write_text(GOOD)
    code, told_of_text = told(capsys, tmp_path / "text.py", "--data", rows)
    assert code == 2 and said in told_of_text, told_of_text
    (tmp_path / "mine.py").write_text(GOOD.replace("labels[0]", read))
    code, told_of_mine = told(capsys, tmp_path / "mine.py", "--data", rows)
    assert code == 0 and "1 of 1 expected answers are right" in told_of_mine, told_of_mine


@pytest.mark.parametrize("label", ["3 * 4 = 12\n#### 12", "so it is #### 12", "['12']"])
def test_labels_that_the_verifier_cannot_read_are_told(capsys, tmp_path, label):
    """It would take the whole label for an answer to itself."""
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "3*4", "label": label}))
    code, said = told(capsys, PATH, "--data", tmp_path / "rows.jsonl")
    assert code == 2 and "it calls 1 of 1 expected answers wrong" in said and "looks raw" in said, said


@pytest.mark.parametrize("label", ["['0', '1']", "[0, 2]", '["7", "7.0"]', "C#"])
def test_labels_that_answers_equal_are_not_called_raw(capsys, tmp_path, label):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "3*4", "label": label}))
    _, said = told(capsys, PATH, "--data", tmp_path / "rows.jsonl")
    assert "looks raw" not in said and "1 of 1 expected answers are right" in said, said
    assert without_verdict(PATH, [label]) == []


@pytest.mark.parametrize(
    "words, expected",
    [
        (["http://user:secret@host/x"], "a URL is no file"),
        (["nothing.py"], "nothing.py does not exist. Name a Python file with reward_func"),
        (["mine.py", "--data", "deepscaler"], "`real-openrlhf data deepscaler --out FILE.jsonl` writes one"),
        (["mine.py", "--data", "rows.txt"], "Name a file with .jsonl, .json, .parquet, .csv"),
    ],
)
def test_what_is_no_file_is_told(capsys, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    for name in ("mine.py", "rows.txt"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(SystemExit) if "URL" in expected else contextlib.nullcontext():
        assert main(["reward", *words]) == 2
    said = capsys.readouterr().err
    assert expected in said and "secret" not in said, said


def test_a_prepared_set_has_its_name_and_the_command_to_paste_is_one_of_a_shell(capsys, tmp_path, monkeypatch):
    """It names the columns too, without which a run refuses the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    row = {"question": [{"role": "user", "content": "1+1="}], "answer": "2"}
    (tmp_path / "data" / "deepscaler.jsonl").write_text(json.dumps(row))
    (tmp_path / "sp ace.py").write_text(GOOD)
    code, said = told(capsys, "sp ace.py", "--data", "deepscaler")
    more = "--data.input_key question --data.label_key answer --data.apply_chat_template"
    assert said.splitlines()[-1] == (
        f"use it: real-openrlhf train --reward.remote_url 'sp ace.py' --data deepscaler {more}"
    )
    assert code == 0


def test_other_columns_and_no_word_on_a_label_that_no_answer_shows(capsys, tmp_path):
    """If it calls every answer wrong, it calls that with another label wrong too, which proves nothing."""
    (tmp_path / "mine.py").write_text(HEAD + "    return {'rewards': 0.0}")
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n{"question": "1+2=", "answer": "3"}\n')
    code, said = told(capsys, tmp_path / "mine.py", "--data", tmp_path / "rows.jsonl")
    assert code == 2 and "it calls 2 of 2 expected answers wrong" in said and "read the label" not in said, said


def test_columns_of_any_names_are_given_as_to_a_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(GOOD)
    (tmp_path / "my.jsonl").write_text(
        '{"q": "1+1=", "a": "2", "answer": "9"}\n{"q": "1+2=", "a": "3", "answer": "9"}\n'
    )
    words = ["mine.py", "--data", "my.jsonl"]
    for more, wanted in ([], "prompt, nor another usual name of it,"), (["--data.input_key", "question"], "question"):
        assert main(["reward", *words, *more]) == 2
        assert f"has no column {wanted} in each row. It has a, answer, q. Name" in capsys.readouterr().err
    words += ["--data.input_key", "q", "--data.label_key"]
    code, said = told(capsys, *words, "a")
    assert code == 0 and said.splitlines()[-1].endswith("--data my.jsonl --data.input_key q --data.label_key a")


# The reward file as OpenRLHF uses it: loaded by its path, called in a thread for one response.


PATH = SHIPPED / "math_reward.py"
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


WRONG = [
    *("REAL_GRADER=mathd", "REAL_GRADER=", "REAL_THINK=no", "REAL_ALLOW=copied,none", "REAL_REWARD_SECONDS=5m"),
    *("REAL_VERIFIER_DEADLINE=nan", "REAL_VERIFIER_MEMORY_MB=0", "REAL_VERIFIER_WORKERS=2.5"),
]


@pytest.mark.parametrize("setting", WRONG)
def test_an_unknown_option_is_told_by_each_who_reads_it(load, capsys, tmp_path, setting):
    """By a run before its start, with all else that is wrong: tests/slow/test_dry_run.py."""
    name, _, value = setting.partition("=")
    assert [*reward_variables.problems({name: value})] and not [*reward_variables.problems({"REAL_ALLOW": ""})]
    with pytest.raises(ValueError, match=setting):
        load(**{name: value})
    (tmp_path / "rows.jsonl").write_text('{"response": "7", "label": "7"}')
    grade = ["--input", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "o.jsonl")]
    for words in (["reward", str(PATH)], ["grade", *grade], ["eval", "--model", "m", "--out", "e"]):
        assert main(words) == 2 and f"error: {setting} must be" in capsys.readouterr().err


def test_each_convention_of_the_verifier_can_be_allowed_in_a_run():
    assert reward_variables.CHOICES["REAL_ALLOW"] == CONVENTIONS


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


# The graders beside the verifier, and what training and evaluation tell it


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
    with pytest.raises(ValueError, match="REAL_ALLOW=copies must be"):
        reward_function("robust")
    pairs = [(Task("math", "1", asked, (), "3x"), SimpleNamespace(response=boxed("2x+x")))]
    assert [*find_grader("robust", "optional")(pairs)] == [(0.0, "copied")]
    assert [*find_grader("robust", "optional", ("copied",))(pairs)] == [(1.0, "exact")]
