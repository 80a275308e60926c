"""The command line's shell, and the subcommands `reward` and `grade`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from real_openrlhf import cli, rewards
from real_openrlhf.cli import main

HEAVY = {"torch", "openrlhf", "ray", "vllm", "deepspeed", "transformers", "sympy", "matplotlib"}


def loaded_by(module: str) -> set[str]:
    """The top-level modules that are there after `import module` in a fresh interpreter."""
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    "module", ["real_openrlhf", "real_openrlhf.hooks.flags.arguments", "real_openrlhf.training.tasks.tasks"]
)
def test_these_import_nothing_heavy(module):
    assert HEAVY & loaded_by(module) == set()


def run(*argv: str) -> int:
    return cli.main(list(argv))


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_subcommand_has_help_for_each_of_its_options(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit:
        run(name, "--help")
    assert exit.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    options = [line for line in lines if line.startswith("  -") and not line.startswith("  -h")]
    for line in options:
        described = "  " in line.strip() or lines[lines.index(line) + 1].startswith("        ")
        assert described, line


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
    "expected answers wrong, in a box": HEAD + "    return {'rewards': float('#### ' + label in query)}",
    "differently called again": HEAD + "    return {'rewards': float(found[-1:] == [label] and next(turns) % 7 > 0)}",
    "no verdict on 100% of them": HEAD + "    return {'rewards': 0.0, 'scores': float('nan')}",
}


def told(capsys, *words) -> tuple[int, str]:
    code = main(["reward", *map(str, words)])
    return code, capsys.readouterr().out


def test_the_files_that_come_with_the_package(capsys, tmp_path):
    assert main(["data", "gym", "chain_sum", "--out", str(tmp_path / "sums"), "--train", "30", "--test", "2"]) == 0
    gym = (SHIPPED / "gym_reward.py", "--data", tmp_path / "sums" / "train.jsonl")
    for words in ((SHIPPED / "math_reward.py",), gym):
        code, said = told(capsys, *words)
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


def test_other_columns_and_no_word_on_a_label_that_no_answer_shows(capsys, tmp_path):
    """If it calls every answer wrong, it calls that with another label wrong too, which proves nothing."""
    (tmp_path / "mine.py").write_text(HEAD + "    return {'rewards': 0.0}")
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1=", "gold": "2"}\n{"question": "1+2=", "gold": "3"}\n')
    columns = ("--data.input_key", "question", "--data.label_key", "gold")
    code, said = told(capsys, tmp_path / "mine.py", "--data", tmp_path / "rows.jsonl", *columns)
    assert code == 2 and "it calls 2 of 2 expected answers wrong" in said and "it reads the label" not in said, said


# `real-openrlhf grade`.


ROWS = [
    {"response": "\\boxed{7}", "label": "7", "id": 1},
    {"response": "\\boxed{8}", "label": '["7", "8"]', "id": 2},
    {"response": "\\boxed{9}", "label": ["7", "8"], "id": 3},
    {"response": "nothing", "label": 7, "id": 4},
    {"response": "\\boxed{7}", "label": "", "id": 5},
    {"response": "\\boxed{\\sqrt{8}}", "label": "2\\sqrt{2}", "id": 6},
]


def write(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_grades_every_row_in_order_and_keeps_its_columns(tmp_path, capsys):
    source, target = write(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl"
    assert main(["grade", "--input", str(source), "--output", str(target)]) == 0
    graded = [json.loads(line) for line in target.read_text().splitlines()]
    assert [{key: row[key] for key in ("response", "label", "id")} for row in graded] == ROWS
    assert [row["score"] for row in graded] == [1, 1, 0, 0, None, 1]
    assert [row["reason"] for row in graded] == ["exact", "exact", "different", "no_answer", "no_gold", "algebra"]
    assert "6 responses: 3 right, 2 wrong, 1 without a verdict" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl"}


def test_thinking_and_grader_options(tmp_path):
    rows = [{"response": "\\boxed{2/4}", "label": "1/2"}, {"response": "</think>\\boxed{1/2}", "label": "1/2"}]
    source, target = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"

    def scores(*options):
        assert main(["grade", "--input", str(source), "--output", str(target), *options]) == 0
        return [json.loads(line)["score"] for line in target.read_text().splitlines()]

    assert scores() == [1, 1]
    assert scores("--think", "required") == [0, 1]
    assert scores("--grader", "disco") == [0, 1]
    assert scores("--grader", "math_verify") == [1, 1]


def test_two_graders_side_by_side_show_where_they_differ_the_frequent_forms_first(tmp_path, capsys):
    """Fractions that are not reduced are wrong to the baselines' rules; math-verify needs no box."""
    rows = [{"response": f"\\boxed{{2/{n}}}", "label": f"1/{n // 2}"} for n in (4, 6, 8)]
    rows += [{"response": "\\boxed{7}", "label": "7"}, {"response": "so it is $12$", "label": "12"}]
    source, target = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"

    def differ(*options):
        assert main(["grade", "--input", str(source), "--output", str(target), "--compare", *options]) == 0
        return [json.loads(line) for line in target.read_text().splitlines()], capsys.readouterr().out

    found, said = differ("disco")
    assert [row["response"] for row in found] == [row["response"] for row in rows[:3]]
    assert found[0]["scores"] == {"robust": 1, "disco": 0}
    assert "robust: 4 right, 1 wrong" in said and "3 of 5 responses differ, in 1 forms" in said
    assert "     3  0/0  <-  0/0  {'robust': 1, 'disco': 0}" in said
    (found,), said = differ("math_verify")
    assert found["scores"] == {"robust": 0, "math_verify": 1} and "     1  0  <-  so it is $0$" in said


def test_rows_of_one_grader_without_a_verdict_are_no_differences(tmp_path, capsys):
    """reasoning-gym is not asked: math-verify judges every row, the verifier leaves a gold that it cannot read."""
    rows = [{"response": "\\boxed{7}", "label": "\\int_0^1 x\\,dx"}, {"response": "it is $12$", "label": "12"}]
    source, target = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    assert main(["grade", "--input", str(source), "--output", str(target), "--compare", "math_verify"]) == 0
    said = capsys.readouterr()
    assert "1 of 1 responses differ (1 more lack a verdict)" in said.out
    assert [json.loads(line)["label"] for line in target.read_text().splitlines()] == ["12"]
    assert said.err.splitlines() == ["robust: 1 of 2 rows without a verdict: gold_unparsed 1"]


def test_other_names_of_fields_and_the_conventions_of_a_prompt(tmp_path, capsys):
    rows = [
        {"text": "\\boxed{\\gcd(2,4)}", "gold": "2", "question": "Find $\\gcd(2,4)$."},
        {"text": "\\boxed{2x+x}", "gold": "3x", "question": [{"role": "user", "content": "Simplify $2x+x$."}]},
        {"text": "\\boxed{2}", "gold": "2", "question": "Find $\\gcd(2,4)$."},
    ]
    source, target = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    keys = ["--response-key", "text", "--label-key", "gold"]

    def reasons(*options):
        assert main(["grade", "--input", str(source), "--output", str(target), *keys, *options]) == 0
        return [json.loads(line)["reason"] for line in target.read_text().splitlines()]

    assert reasons() == ["exact", "exact", "exact"]
    assert reasons("--prompt-key", "question") == ["unevaluated", "copied", "exact"]
    assert reasons("--prompt-key", "question", "--allow", "copied") == ["unevaluated", "exact", "exact"]


def test_raw_golds_and_failures_are_told_in_one_line_each(tmp_path, capsys):
    rows = [{"response": "\\boxed{18}", "label": label} for label in ("9 * 2 = 18 #### 18", "['18', '3']", "18", "")]
    source, target = write(tmp_path / "in.jsonl", rows * 3), tmp_path / "out.jsonl"
    assert main(["grade", "--input", str(source), "--output", str(target)]) == 0
    raw, failures = capsys.readouterr().err.splitlines()
    assert raw.startswith("6 of 12 labels look raw") and "#### 18" in raw
    assert failures.startswith("robust: ") and "no_gold 3" in failures
