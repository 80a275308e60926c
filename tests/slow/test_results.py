"""The pages say what the committed runs say, and new runs can be published beside them."""

import csv
import json
import re
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from invented_runs import write_lines, write_run

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE = ROOT / "examples" / "results", ROOT / "docs" / "evidence" / "results.md"

sys.path.insert(0, str(RESULTS))
import check  # noqa: E402 (its files import each other by name)
import publish  # noqa: E402


def test_every_number_of_the_readme_and_the_results_is_that_of_the_records(capsys):
    assert check.main() == 0, capsys.readouterr().err
    for name in ("check.py", "sentences.py"):
        assert "real_openrlhf" not in re.sub("#.*", "", (RESULTS / name).read_text())


@pytest.mark.parametrize("number", [r"Holm's p 0\.\d+", r"<!-- table: check endings -->\n.*\n.*\n\|C\|GRPO\|1e-4\|\d"])
def test_a_changed_digit_of_a_sentence_or_a_table_is_a_problem(number, tmp_path, monkeypatch, capsys):
    def another(found: re.Match) -> str:
        return found[0][:-1] + str((int(found[0][-1]) + 1) % 10)

    page = tmp_path / "results.md"
    page.write_text(re.sub(number, another, PAGE.read_text(), count=1))
    monkeypatch.setattr("sentences.RESULTS", page)
    assert check.main() == 1 and "results.md" in capsys.readouterr().err


def test_the_page_for_the_reader_is_short():
    page = re.sub(r"^\|.*", "", PAGE.read_text(), flags=re.MULTILINE)  # without its tables
    assert len([word for word in page.split() if re.search(r"\w", word)]) <= 900


def test_committed_records_say_nothing_of_the_machine():
    for path in RESULTS.rglob("campaign.json"):
        texts = (path.read_text(), path.with_name("runs.csv").read_text())
        assert not [text for text in texts if re.search(r'["(,]/(?!dev)\w', text)], path


def test_a_published_campaign_says_all_that_the_runs_said_and_nothing_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, rate in {1: 0.1 + 0.2, 2: 1}.items():
        flags = {"--actor.adam.lr": rate, "--algo.kl.estimator": "1.0", "--empty": "", "--none": None}
        run = write_run(tmp_path / "runs", "real", seed, flags=flags, data={str(tmp_path / "data/mine.jsonl"): "abc"})
        write_lines(
            run, [{"phase": "eval", "step": 0, "eval_x_pass1": 1e-300}, {"phase": "train", "step": 1, "loss": rate}]
        )
    write_run(tmp_path / "runs", "grpo", 1, status="failed", reason="interrupted by SIGTERM")
    assert publish.main("runs", "shared") == 0
    shared = tmp_path / "shared"
    assert str(tmp_path) not in (shared / "campaign.json").read_text() + (shared / "runs.csv").read_text()
    common = json.loads((shared / "campaign.json").read_text())["common"]
    rows = [*csv.DictReader((shared / "runs.csv").open(newline=""))]
    assert [row["name"] for row in rows] == ["cpu-real-s1", "cpu-real-s2"]
    assert [json.loads(row["flags/--actor.adam.lr"]) for row in rows] == [0.1 + 0.2, 1]
    assert common["data"] == {"data/mine.jsonl": "abc"} and common["flags"]["--algo.kl.estimator"] == "1.0"
    lines = pyarrow.parquet.read_table(shared / "metrics.parquet").to_pylist()
    assert [line["loss"] for line in lines] == [None, 0.1 + 0.2, None, 1] and lines[0]["eval_x_pass1"] == 1e-300
    before = {path.name: path.read_bytes() for path in shared.iterdir()}
    write_lines(run, [{"phase": "train", "step": 1, "loss": 9.0}])
    with pytest.raises(SystemExit, match="other runs"):
        publish.main("runs", "shared")
    assert before == {path.name: path.read_bytes() for path in shared.iterdir()}


def test_runs_of_two_machines_make_the_campaign_that_they_make_on_one(tmp_path):
    for folder in ("one", "whole"):
        write_run(tmp_path / folder, "real", 1, flags={"--note": "a, b"})
    for folder in ("another", "whole"):
        write_run(tmp_path / folder, "grpo", 2)
    for folder, out in (("whole", "at once"), ("one", "shared"), ("another", "shared")):
        publish.main(str(tmp_path / folder), str(tmp_path / out))
    for path in (tmp_path / "at once").iterdir():
        assert path.read_bytes() == (tmp_path / "shared" / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"code_version": "1b2c3d4-dirty"}, "ran code that no commit has"),
        ({"code_version": "8ace1e6", "tree": None}, "does not name the tree that it ran"),
        ({"earlier_code": [{"code_version": "1b2c3d4-dirty"}]}, "ran code that no commit has"),
    ],
)
def test_a_run_of_code_that_nobody_has_is_not_published(tmp_path, record, why):
    write_run(tmp_path / "runs", **record)
    with pytest.raises(SystemExit, match=why):
        publish.main(str(tmp_path / "runs"), str(tmp_path / "shared"))
    assert not (tmp_path / "shared").exists()
