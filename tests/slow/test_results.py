"""The pages say what the committed runs and the code say."""

import csv
import hashlib
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from invented_runs import map_run, write_lines, write_run

from real_openrlhf.recipes.algorithms import ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "examples" / "results"


sys.path.insert(0, str(RESULTS))
BUILT_IN = dict(ALGORITHMS)
import ages  # noqa: E402 (its files import each other by name)
import campaigns  # noqa: E402
import check  # noqa: E402
import publish  # noqa: E402
import sentences  # noqa: E402

OF_RECORDS = dict(ALGORITHMS)  # as `methods.install` leaves them
ALGORITHMS.clear()
ALGORITHMS.update(BUILT_IN)  # for other tests of this process


@pytest.fixture(autouse=True)
def methods_of_the_records():
    ALGORITHMS.clear()
    ALGORITHMS.update(OF_RECORDS)
    yield
    ALGORITHMS.clear()
    ALGORITHMS.update(BUILT_IN)


def curve(campaign: str, run: str) -> list[float]:
    """pass@1 of each evaluation in order, without the project's reader."""
    evals = check.campaign(campaign)[run].evals
    return [evals[step] for step in sorted(evals)]


EDGE = [("3e-4", 64), ("3e-4", 16), ("1e-3", 64)]  # the columns of the page's table, five seeds each


@pytest.mark.parametrize(
    "algo, label",
    [
        *(("real", "REAL"), ("real_constant", "REAL, constant weights"), ("real_balanced", "REAL, balanced")),
        *(("grpo", "GRPO"), ("gspo", "GSPO"), ("cispo", "CISPO")),
    ],
)
def test_the_typed_table_of_the_maps_edge_is_of_the_runs(algo, label):
    """A table of the page that is typed: ends and collapses from the logged lines."""
    cells, collapsed = [], 0
    for rate, batch in EDGE:
        ends = []
        for seed in range(1, 6):
            found = curve("map", f"{algo}-lr-{rate}-batch_size-{batch}-s{seed}")
            ends.append(found[-1])
            collapsed += found[-1] < max(found) / 2
        cells.append(f"{statistics.mean(ends):.3f} ± {statistics.stdev(ends) / math.sqrt(5):.3f}")
    row = f"| {label} | {' | '.join(cells)} | {collapsed} of 15 |"
    assert row in (RESULTS / "archive" / "README.md").read_text().splitlines()


def test_the_ends_that_the_page_lists_of_single_runs():
    page = (RESULTS / "archive" / "README.md").read_text()
    for rate in ("1e-4", "4e-4"):
        for algo, label in {"real": "REAL", "grpo": "GRPO", "cispo": "CISPO"}.items():
            ends = [curve("stale", f"{algo}-lr-{rate}-async_queue_size-{size}-s1")[-1] for size in (1, 2, 4, 8)]
            assert f"| {label} | {rate} | {' | '.join(f'{end:.2f}' for end in ends)} |" in page.splitlines()
    algos = "real", "real_constant", "real_balanced", "grpo"
    real, constant, balanced, grpo = (curve("rates", f"tune-sums-rates/{algo}-lr-4e-4-s1")[-1] for algo in algos)
    said = f"at 4e-4 REAL ends at {real:.2f} and constant weights at {constant:.2f}, balanced REAL at {balanced:.2f}"
    assert f"{said} and GRPO at {grpo:.2f}" in " ".join(page.split())


def ends(campaign: str, run: str) -> dict[str, float]:
    """The last pass@1 of each run of this name, by seed."""
    found = {
        name: curve(campaign, name)[-1] for name in check.campaign(campaign) if re.fullmatch(rf"{run}-s\d+", name)
    }
    assert found, run
    return {name.rpartition("-s")[2]: end for name, end in found.items()}


def said(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def test_the_ends_and_differences_that_are_typed_recomputed():
    page = " ".join((RESULTS / "archive" / "README.md").read_text().split())
    mixed = {"dapo": "DAPO", "real_no_anchor": "REAL without anchor", "grpo": "GRPO", "real": "REAL"}
    mixed |= {"real_constant": "constant weights", "real_bce": "BCE", "gspo": "GSPO"}
    for algo, label in mixed.items():
        assert f"{label} {said([*ends('archive', f'mixed/{algo}').values()])}" in page
    hard = [said([*ends("archive", f"hard/{name}").values()]) for name in ("real", "real-uniform_groups-keep", "grpo")]
    assert f"REAL ends at {hard[0]}, with `keep` at {hard[1]}," in page and f"GRPO at {hard[2]}; three seeds" in page
    demo = [said([*ends("smollm2-demo", name).values()]) for name in ("real-lr-3e-5", "gspo-lr-6e-5", "grpo-lr-6e-5")]
    assert "REAL ends at {}, GSPO at {}, GRPO at {}.".format(*demo) in page
    real = ends("smollm2", "real-lr-3e-05")
    for label, folder, run in (
        ("random labels", "smollm2", "real-lr-3e-05-labels-.*"),
        ("right answers only", "smollm2-controls", "real-lr-3e-5-labels-.*"),
        ("constant weights", "smollm2-controls", "real_constant-lr-3e-5"),
        ("GRPO", "smollm2", "grpo-lr-3e-05"),
        ("listwise targets", "smollm2-controls", "listwise-lr-3e-5"),
    ):
        assert f"| {label} | {said([end - real[seed] for seed, end in ends(folder, run).items()])} |" in page


def test_every_number_of_the_readme_and_the_results_is_that_of_the_records(capsys):
    assert check.main() == 0, capsys.readouterr().err
    for name in ("check.py", "sentences.py"):
        assert "real_openrlhf" not in re.sub("#.*", "", (RESULTS / name).read_text())


WRONG = {  # on the page, what stands in its place, what the check says
    "|4 updates|+0.004±0.006|": ("|4 updates|+0.005±0.006|", "'+0.005±0.006'"),
    "REAL gained 0.058": ("REAL gained 0.057", "does not say: Summed scores"),
    "## Limits": ("REAL gains 0.123.\n\n## Limits", "nothing here computes 0.123"),
    "||3|39|38|": ("||3|39|37|", "check by_rate: ['', '3', '39', '37'"),
    "3 of 13 up to": ("2 of 13 up to", "does not say: in 0 of 10 runs"),
    "## Stale responses": (
        "REAL scored 0.116 ± 0.023 higher.\n\n## Stale responses",
        "3, 3 times the best rates: not said",
    ),
    "## Pre-registered": ("CISPO without the ratio loses.\n\n## Pre-registered", "CISPO has the ratio"),
    "|parameters|": ("|x|refuted|\n|parameters|", "a conclusion is 'refuted'"),
}
# Rows and sentences of an earlier page that were about something else than their numbers
MISNAMED = (
    "| open | four updates: ratio removed (REINFORCE) or capped (CISPO), less GRPO |",
    "Without the ratio, CISPO and REINFORCE are below REAL.",
    "GSPO without the clip wins.",
)


def test_the_check_sees_what_is_not_of_the_records(tmp_path, monkeypatch, capsys):
    text = check.RESULTS.read_text()
    for before, (after, _) in WRONG.items():
        assert before in text, before
        text = text.replace(before, after)
    page = tmp_path / "results.md"
    page.write_text(text)
    for module in (check, sentences):
        monkeypatch.setattr(module, "RESULTS", page)
    assert check.main() == 1
    said = capsys.readouterr().err
    for _, complaint in WRONG.values():
        assert complaint in said
    assert all([*check.misnamed(row)] for row in MISNAMED)
    assert not [*check.misnamed("CISPO and REINFORCE keep the ratio and drop GRPO's clip and KL: they lose.")]


def test_differences_equal_those_that_were_recorded_when_the_runs_ended():
    """In PREDICTIONS.md, by the package's own report: two ways to one number. Those of a queue of eight counted an
    evaluation that is missing, and differ."""
    text = (RESULTS / "next" / "PREDICTIONS.md").read_text()
    pairs = [(place, label, "REAL") for place, arms in check.PLACES.items() for label in {*arms} - {"REAL"}]
    pairs += [("stale", f"ratio {side}", "ratio both") for side in ("right", "wrong", "none")]
    found = {sentences.size(check.between(*pair)) for pair in pairs}
    before, _, after = text.partition("### `old`, ages 2 and 8")
    text = before + after.partition("### `ratio-old`")[2]
    recorded = set(re.findall(r"\| [+-](\d\.\d{3} ± \d\.\d{3}), (?:level|higher|lower|open)", text))
    assert len(recorded) > 40 and recorded <= found, recorded - found


def test_a_queue_without_an_evaluation_is_compared_on_those_that_both_have():
    eight, none = check.arm("queue of 8", "REAL"), check.arm("queue of 0", "REAL")
    assert none.steps - eight.steps == {25} and 25 not in ages.shared_steps()


def test_the_page_for_the_reader_is_short():
    """Its tables are of the runs: `refresh.py --check` in tests/smoke."""
    page = (ROOT / "docs/evidence/results.md").read_text()
    assert len([word for word in page.split() if re.search(r"\w", word)]) <= 950


def test_committed_runs_say_what_they_are_and_nothing_of_the_machine():
    folders = sorted(path.parent for path in RESULTS.rglob("campaign.json"))
    assert len(folders) >= 8
    with (RESULTS / "whole_records.csv").open() as file:
        whole = {row["file"] for row in csv.DictReader(file)}
    for folder in folders:
        records, sources = campaigns.records(folder)
        assert sources or f"{folder.relative_to(RESULTS)}/metrics.parquet" in whole
        for name, record in records.items():
            told = folder.name == "map" or name.startswith("weights-small/")  # pages show which runs broke, and why
            broke = record["status"] == "failed" and told and record["reason"]
            assert (record["status"] == "finished" or broke) and record["code_version"] and record["seed"] >= 1
            assert not re.search(r'"/(?!dev)', json.dumps(record)), name  # no absolute path


def test_a_published_campaign_says_all_that_the_runs_said_and_nothing_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rates = {1: 0.1 + 0.2, 2: 1}
    for seed, rate in rates.items():
        flags = {"--actor.adam.lr": rate, "--algo.kl.estimator": "1.0", "--empty": "", "--none": None}
        here = {"data": {str(tmp_path / "data" / "mine.jsonl"): "abc"}}
        run = write_run(tmp_path / "runs", "real", seed, flags=flags, **here)
        lines = [{"phase": "eval", "step": 0, "eval_x_pass1": 1e-300}, {"phase": "train", "step": 1, "loss": rate / 3}]
        write_lines(run, lines)
    interrupted = write_run(tmp_path / "runs", "grpo", 1, status="failed", reason="interrupted by SIGTERM")
    assert publish.main("runs", "shared") == 0
    assert str(tmp_path) not in "".join(
        (tmp_path / "shared" / name).read_text() for name in ("campaign.json", "runs.csv")
    )
    found, sources = campaigns.records(tmp_path / "shared")
    assert len(found) == 2 and interrupted.name not in found
    logged = campaigns.lines(tmp_path / "shared")
    for run in sorted((tmp_path / "runs").glob("cpu-real-*")):
        about = json.loads((run / "run.json").read_text()) | {"data": {"data/mine.jsonl": "abc"}}
        assert json.dumps(found[run.name], sort_keys=True) == json.dumps(about, sort_keys=True)
        assert sources[f"{run.name}/run.json"] == hashlib.sha256((run / "run.json").read_bytes()).hexdigest()
        own = logged[logged["run"] == run.name].drop(columns="run").to_dict("records")
        lines = [{key: value for key, value in line.items() if value == value} for line in own]
        assert lines == [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    before = {path.name: path.read_bytes() for path in (tmp_path / "shared").iterdir()}
    write_lines(run, [{"phase": "train", "step": 1, "loss": 9.0}])
    with pytest.raises(SystemExit, match="other runs"):
        publish.main("runs", "shared")
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "shared").iterdir()}


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


def best_rates(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, RESULTS / "best_rates.py", *words], capture_output=True, text=True)


def test_the_best_rate_of_each_method_is_of_the_tuning_seeds(tmp_path):
    """By the mean of the last validations; seeds that are kept for later, and runs that failed, do not decide."""
    ends = {("real", 1e-4): [0.5, 0.7], ("real", 2e-4): [0.9, 0.1], ("real", 4e-4): [0.6, 0.6]}
    ends |= {("grpo", 1e-4): [0.2, 0.2], ("grpo", 2e-4): [0.8, 0.9, 0.0], ("grpo", 4e-4): [1.0]}
    for (algo, rate), values in ends.items():
        for seed, end in enumerate(values, 1):
            status = "failed" if rate == 4e-4 and algo == "grpo" else "finished"
            map_run(tmp_path, algo, rate, 64, seed, [end, end], status=status)
    done = best_rates(str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["grpo --actor.adam.lr 0.0002", "real --actor.adam.lr 0.0001"]
    done = best_rates("--seeds=3", str(tmp_path))
    assert "grpo --actor.adam.lr 0.0002" in done.stdout  # 0.57 with the third seed
