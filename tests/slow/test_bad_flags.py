"""The part of the table of bad inputs that asks OpenRLHF's own parser, in the process of test_dry_run.py."""

import pytest
from bad_input_check import check, good_model, prepare
from bad_inputs import CASES


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return good_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("case", [case for case in CASES if case.dry], ids=lambda case: case.id)
def test_bad_input_is_one_line(case, tmp_path, model, monkeypatch, capsys):
    prepare(tmp_path, model, monkeypatch)
    check(case, tmp_path, monkeypatch, capsys)
