"""The six benchmarks: row counts, formats, and the very prompts of the paper's baselines."""

import json
from pathlib import Path

import pyarrow.parquet
import pytest

from real_openrlhf.cli import main
from real_openrlhf.data.benchmarks import BENCHMARKS, chosen, read_benchmark
from real_openrlhf.errors import UserError

ORIGINALS = Path(__file__).parents[2] / ".." / "shared" / "data" / "benchmarks"
needs_originals = pytest.mark.skipif(not ORIGINALS.is_dir(), reason=f"the benchmark files are not at {ORIGINALS}")

ROWS = {"aime24": 30, "aime25": 30, "math500": 500, "amc23": 83, "minerva": 272, "olympiadbench": 675}
FILES = dict(zip(ROWS, ["aime", "aime25", "math", "amc", "minerva", "olympiad_bench"], strict=True))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmarks")
    assert main(["data", "benchmarks", "--source", str(ORIGINALS), "--out", str(folder)]) == 0
    return folder


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def originals(name):
    return pyarrow.parquet.read_table(ORIGINALS / f"{FILES[name]}.parquet").to_pylist()


@needs_originals
@pytest.mark.parametrize("name", ROWS)
def test_every_row_with_the_baselines_very_prompt(prepared, name):
    before, after = originals(name), records(prepared / f"{name}.jsonl")
    assert len(before) == len(after) == ROWS[name] == BENCHMARKS[name].rows
    assert [row["prompt"][0]["content"] for row in after] == [row["prompt"][0]["content"] for row in before]
    assert {row["datasource"] for row in after} == {name}
    assert len({row["id"] for row in after}) == ROWS[name]
    assert len({row["prompt"][0]["content"] for row in after}) == ROWS[name]


@needs_originals
@pytest.mark.parametrize("name", ROWS)
def test_every_gold_is_there(prepared, name):
    for before, after in zip(originals(name), records(prepared / f"{name}.jsonl"), strict=True):
        gold, golds = before["reward_model"]["ground_truth"], json.loads(after["label"])
        if isinstance(gold, float):
            assert golds == [str(int(gold))] and int(gold) == gold
        elif isinstance(gold, list):
            assert golds == list(dict.fromkeys(item.strip() for item in gold))
        else:
            assert golds == [str(gold)]


@needs_originals
def test_minerva_has_the_several_golds_of_the_baselines():
    before = [len(row["reward_model"]["ground_truth"]) for row in originals("minerva")]
    after = [len(problem.golds) for problem in read_benchmark("minerva", ORIGINALS)[0]]
    assert [before.count(n) for n in (1, 2, 3)] == [197, 71, 4]
    assert [after.count(n) for n in (1, 2, 3)] == [232, 38, 2]  # without the repeated ones


@needs_originals
@pytest.mark.parametrize("name", ROWS)
def test_prepared_files_prepare_to_themselves(prepared, name, tmp_path):
    for source in (prepared, prepared / f"{name}.jsonl"):
        out = tmp_path / "again.jsonl"
        assert main(["data", name, "--source", str(source), "--out", str(out)]) == 0
        assert out.read_bytes() == (prepared / f"{name}.jsonl").read_bytes()


def write_aime(path, count):
    path.write_text("".join(json.dumps({"problem": f"Problem {n}?", "answer": n}) + "\n" for n in range(count)))


def test_another_number_of_rows_is_refused(tmp_path, capsys):
    write_aime(tmp_path / "aime24.jsonl", 29)
    assert main(["data", "aime24", "--source", str(tmp_path), "--out", str(tmp_path / "o.jsonl")]) == 2
    error = capsys.readouterr().err
    assert "aime24 has 30 problems in the paper's tables" in error and "has 29" in error and error.count("\n") == 1
    assert not (tmp_path / "o.jsonl").exists()


def test_a_row_without_gold_is_refused(tmp_path):
    path = tmp_path / "aime24.jsonl"
    path.write_text("".join(json.dumps({"problem": f"{n}?", "answer": n if n < 29 else ""}) + "\n" for n in range(30)))
    with pytest.raises(UserError, match="row 29 of .* lacks its problem or gold"):
        read_benchmark("aime24", tmp_path)


def test_a_folder_without_the_benchmark_is_named(tmp_path):
    with pytest.raises(UserError, match="has no aime24.jsonl and no aime.parquet"):
        read_benchmark("aime24", tmp_path)


def test_the_folder_option_wants_a_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["data", "benchmarks", "--source", str(tmp_path), "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_choosing():
    assert chosen(["all"]) == list(ROWS)
    assert chosen(["minerva", "aime24"]) == ["aime24", "minerva"]
    with pytest.raises(UserError, match="unknown benchmark aime26"):
        chosen(["aime24", "aime26"])
