"""Each bad input is one line and exit code 2, and changes nothing: the table is tests/bad_inputs.py."""

import json

import pytest
from bad_input_check import ask, check, good_model, prepare, words_of
from bad_inputs import CASES, DATA, GOOD, ROWS, Case

from real_openrlhf.training import command


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return good_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def world(tmp_path, model, monkeypatch):
    prepare(tmp_path, model, monkeypatch)
    return tmp_path


def test_the_table_is_as_long_as_it_should_be():
    assert len(CASES) >= 60 and len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", [case for case in CASES if not case.dry], ids=lambda case: case.id)
def test_bad_input_is_one_line(case, world, monkeypatch, capsys):
    check(case, world, monkeypatch, capsys)


def test_what_is_not_spoiled_is_accepted(world, monkeypatch, capsys):
    """Otherwise the table would prove nothing."""
    started = []
    monkeypatch.setattr(command, "_train", lambda *_: started.append(1) or 0)
    monkeypatch.setattr(command, "_prepare", lambda *_: None)
    monkeypatch.setattr(command, "_check_data", command._check_data)
    case = Case("good", lambda folder: None, "")
    words = words_of(case)
    assert ask(words) == 0, capsys.readouterr().err
    assert started


def test_rows_that_repeat_or_lack_a_label_are_told(world, monkeypatch, capsys):
    monkeypatch.setattr(command, "_train", lambda *_: 0)
    monkeypatch.setattr(command, "_prepare", lambda *_: None)
    rows = [GOOD | {"prompt": f"{number}="} for number in range(ROWS)] + [GOOD | {"prompt": "1=", "label": None}]
    (world / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert ask(words_of(DATA[0])) == 0
    said = capsys.readouterr().out
    assert "rows.jsonl: 1 of 65 rows have no label" in said and "rows.jsonl: 1 of 65 rows repeat a prompt" in said
