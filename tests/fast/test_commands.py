"""The command line's shell, text of others in it, and `grade`."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
import untrusted_text as untrusted
from hypothesis import HealthCheck, Phase, given, settings

from real_openrlhf import cli
from real_openrlhf.base.terminal import exit_code, plain
from real_openrlhf.cli import main


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_subcommand_has_help_for_each_of_its_options(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit:
        main([name, "--help"])
    assert exit.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    options = [line for line in lines if line.startswith("  -") and not line.startswith("  -h")]
    for line in options:
        described = "  " in line.strip() or lines[lines.index(line) + 1].startswith("        ")
        assert described, line


# Text of others


@pytest.mark.parametrize("holds", untrusted.PROPERTIES, ids=lambda holds: holds.__name__)
def test_any_text_is_read_or_refused_and_never_obeyed(holds):
    check = settings(
        max_examples=25,
        deadline=None,
        database=None,
        derandomize=True,  # benchmarks/fuzz.py draws others
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


# `real-openrlhf grade`.


ROWS = [
    {"response": "\\boxed{7}", "label": "7", "id": 1},
    {"response": "\\boxed{8}", "label": '["7", "8"]', "id": 2},
    {"response": "\\boxed{9}", "label": ["7", "8"], "id": 3},
    {"response": "nothing", "label": 7, "id": 4},
    {"response": "\\boxed{7}", "label": "", "id": 5},
    {"response": "\ud83d \\boxed{\\sqrt{8}}", "label": "2\\sqrt{2}", "id": 6},  # half an emoji
]


def write(path, rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_grades_every_row_in_order_and_keeps_its_columns(tmp_path, capsys):
    source, target = write(tmp_path / "in.jsonl", [*ROWS, {"response": "x"}]), tmp_path / "out.jsonl"
    assert main(["grade", "--input", str(source), "--output", str(target)]) == 1  # a row is left out
    graded = [json.loads(line) for line in target.read_text().splitlines()]
    assert [{key: row[key] for key in ("response", "label", "id")} for row in graded] == ROWS
    assert [row["score"] for row in graded] == [1, 1, 0, 0, None, 1]
    assert [row["reason"] for row in graded] == ["exact", "exact", "different", "no_answer", "no_gold", "algebra"]
    out, told = capsys.readouterr()
    assert "6 responses: 3 correct, 2 incorrect, 1 ungraded" in out and "1 of 7 rows were left out" in told
    assert "line 7 is no JSON object with `response`, a text, and `label`" in told
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", "out.jsonl", "out.jsonl.manifest.json"}


@pytest.mark.parametrize("mine", ['{"id": 1, "score": 5, "reason": "good"}', "\n{}", '{"form": "A", "scores": [1]}'])
def test_rows_that_only_look_graded_are_not_overwritten(tmp_path, refused, mine):
    """Its own earlier output is, and an empty file, but not an output that somebody has edited."""
    source, target = write(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl"
    words = ["grade", "--input", str(source), "--output", str(target)]
    target.write_text(mine)
    assert "out.jsonl exists, and real-openrlhf did not write it" in refused(*words)
    assert target.read_text() == mine
    target.write_text("")
    assert main(words) == main(words) == 0
    target.write_text(target.read_text().replace('"score": 0', '"score": 1'))
    assert "another --output" in refused(*words)


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


def test_two_graders_side_by_side_show_where_they_differ_the_frequent_forms_first(tmp_path):
    """Fractions that are not reduced are wrong to the baselines' rules. A row without a verdict is no difference."""
    rows = [{"response": f"\\boxed{{2/{n}}}", "label": f"1/{n // 2}"} for n in (4, 6, 8)]
    rows += [{"response": "\\boxed{7}", "label": label} for label in ("7", "\\int_0^1 x\\,dx")]
    source = write(tmp_path / "in.jsonl", rows)
    files = [tmp_path / f"{grader}.jsonl" for grader in ("robust", "disco")]
    for file in files:
        assert main(["grade", "--input", str(source), "--output", str(file), "--grader", file.stem]) == 0
    script = Path(__file__).parents[2] / "benchmarks/graders_differ.py"
    done = subprocess.run([sys.executable, script, *files], capture_output=True, text=True)
    assert "3 of 4 responses differ, in 1 forms" in done.stdout and "     3  0/0  <-  0/0  1 0\n" in done.stdout, done


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
