"""README.md and docs/results.md say what the committed runs say."""

import importlib.util
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from invented_runs import write_run

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "examples" / "results"


def test_tables_and_pages_are_those_of_the_committed_runs():
    done = subprocess.run([sys.executable, RESULTS / "refresh.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_a_page_or_a_picture_should_not_be_is_told(tmp_path, monkeypatch):
    specification = importlib.util.spec_from_file_location("refresh", RESULTS / "refresh.py")
    refresh = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(refresh)
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- table: examples/results/mixed/report/tables/results.md -->\n| by hand |\n<!-- end -->\n"
        "![](../examples/results/mixed/report/figures/nothing.png)"
    )
    monkeypatch.setattr(refresh, "PAGES", (page,))
    told = list(refresh.problems())
    assert any("nothing.png is shown by a page and missing" in problem for problem in told)
    assert any("dynamics.png is shown by no page" in problem for problem in told)
    assert any(f"{page} is not what" in problem for problem in told)


@pytest.mark.parametrize(
    "algo, label", [("real", "REAL"), ("grpo", "GRPO"), ("real_constant", "REAL, constant weights")]
)
def test_the_readmes_scores_recomputed(algo, label):
    """Mean and standard error of the last evaluation, from the logged lines, in a few lines of arithmetic."""
    scores = []
    for path in sorted((RESULTS / "tune" / "runs").glob(f"{algo}-lr-*/metrics.jsonl")):
        lines = map(json.loads, path.read_text().splitlines())
        scores.append([line["eval_reverse_pass1"] for line in lines if line["phase"] == "eval"][-1])
    assert len(scores) >= 5
    mean, error = statistics.mean(scores), statistics.stdev(scores) / math.sqrt(len(scores))
    row = re.search(rf"^\| {label} \| \**([\d.]+) ± ([\d.]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert (row[1], row[2]) == (f"{mean:.3f}", f"{error:.3f}")


EDGE = [("3e-4", 64), ("3e-4", 16), ("1e-3", 64)]  # the columns of the page's table, five seeds each


@pytest.mark.parametrize(
    "algo, label",
    [
        *(("real", "REAL"), ("real_constant", "REAL, constant weights"), ("real_balanced", "REAL, balanced")),
        *(("grpo", "GRPO"), ("gspo", "GSPO"), ("cispo", "CISPO")),
    ],
)
def test_the_edge_of_the_map_recomputed(algo, label):
    """The one table of the page that is typed: ends and collapses from the logged lines."""
    cells, collapsed = [], 0
    for rate, batch in EDGE:
        ends = []
        for seed in range(1, 6):
            path = RESULTS / "map" / "runs" / f"{algo}-lr-{rate}-batch_size-{batch}-s{seed}" / "metrics.jsonl"
            lines = map(json.loads, path.read_text().splitlines())
            curve = [line["eval_reverse_pass1"] for line in lines if line["phase"] == "eval"]
            ends.append(curve[-1])
            collapsed += curve[-1] < max(curve) / 2
        cells.append(f"{statistics.mean(ends):.3f} ± {statistics.stdev(ends) / math.sqrt(5):.3f}")
    row = f"| {label} | {' | '.join(cells)} | {collapsed} of 15 |"
    assert row in (ROOT / "docs" / "results.md").read_text().splitlines()


def ends_of(experiment: str, *runs: str) -> list[float]:
    found = []
    for run in runs:
        lines = map(json.loads, (RESULTS / experiment / "runs" / run / "metrics.jsonl").read_text().splitlines())
        evaluations = [line for line in lines if line["phase"] == "eval"]
        found.append(next(value for name, value in evaluations[-1].items() if name.endswith("pass1")))
    return found


def test_the_ends_that_the_page_lists_of_single_runs():
    page = " ".join((ROOT / "docs" / "results.md").read_text().split())
    queue = "async_queue_size-{}-s1"
    for algo, said in {"grpo": "GRPO ends at {}", "real": "REAL at {}", "cispo": "CISPO ends at {}"}.items():
        ends = ends_of("stale", *(f"{algo}-lr-1e-4-{queue.format(size)}" for size in (1, 2, 4, 8)))
        one, two, four, eight = (f"{end:.2f}" for end in ends)
        assert said.format(f"{one}, {two}, {four} and {eight}") in page
    grpo, real, cispo = ends_of("stale", *(f"{algo}-lr-4e-4-{queue.format(1)}" for algo in ("grpo", "real", "cispo")))
    assert f"at {grpo:.2f}, where REAL has {real:.2f} and CISPO {cispo:.2f}" in page
    algos = "real", "real_constant", "real_balanced", "grpo"
    real, constant, balanced, grpo = ends_of("tune-sums-rates", *(f"{algo}-lr-4e-4-s1" for algo in algos))
    assert f"at 4e-4 REAL ends at {real:.2f} and the control at {constant:.2f}" in page
    assert f"balanced REAL at {balanced:.2f} and GRPO at {grpo:.2f}" in page


def test_committed_runs_say_what_they_are_and_nothing_of_the_machine():
    records = sorted(RESULTS.glob("*/runs/*/run.json"))
    assert len(records) >= 50
    for path in records:
        record = json.loads(path.read_text())
        broke = record["status"] == "failed" and path.parts[-4] == "map" and record["reason"]  # which a map shows
        assert (record["status"] == "finished" or broke) and record["code_version"] and record["seed"] >= 1
        assert not re.search(r'"/(?!dev)', path.read_text()), path  # no absolute path


def test_the_best_rate_of_each_method_is_of_the_tuning_seeds(tmp_path):
    """By the mean of the last validations; seeds that are kept for later, and runs that failed, do not decide."""
    ends = {("real", 1e-4): [0.5, 0.7], ("real", 2e-4): [0.9, 0.1], ("real", 4e-4): [0.6, 0.6]}
    ends |= {("grpo", 1e-4): [0.2, 0.2], ("grpo", 2e-4): [0.8, 0.9, 0.0], ("grpo", 4e-4): [1.0]}
    for (algo, rate), values in ends.items():
        for seed, end in enumerate(values, 1):
            status = "failed" if rate == 4e-4 and algo == "grpo" else "finished"
            name = f"{algo}-{rate}-s{seed}"
            folder = write_run(tmp_path, algo, seed, 2, {"--actor.adam.lr": rate}, name, status=status)
            lines = [{"phase": "eval", "step": step, "time": 1, "eval_x_pass1": end} for step in (0, 2)]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = subprocess.run([sys.executable, RESULTS / "best_rates.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["grpo --actor.adam.lr 0.0002", "real --actor.adam.lr 0.0001"]
