"""`real-openrlhf grade`."""

import json

import pytest

from real_openrlhf.cli import main

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


@pytest.mark.parametrize(
    "rows, complaint",
    [
        ([], "the file is empty"),
        (["{"], "line 1 is no JSON object"),
        (["[1]"], "line 1 is no JSON object"),
        ([ROWS[0], {"response": "x"}], "line 2 is no JSON object with `response`, a text, and `label`"),
        ([{"response": 7, "label": "7"}], "line 1 is no JSON object"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_output(tmp_path, refused, rows, complaint):
    source, target = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    assert complaint in refused("grade", "--input", source, "--output", target)
    assert not target.exists()


def test_missing_files_and_folders(tmp_path, refused):
    assert "No such file" in refused("grade", "--input", tmp_path / "no.jsonl", "--output", tmp_path / "out.jsonl")
    source, target = write(tmp_path / "in.jsonl", ROWS[:1]), tmp_path / "made" / "out.jsonl"
    assert main(["grade", "--input", str(source), "--output", str(target)]) == 0 and target.exists()
