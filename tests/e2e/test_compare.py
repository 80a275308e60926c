"""Two methods on the real stack, with an evaluation of each. Locks and kills: tests/fast/test_comparison.py."""

import csv
import json
import subprocess
from pathlib import Path

import forked_workers
import pytest
from small_runs import SMALL

from real_openrlhf.training import tiny_task

RUNS = {"real-s1": "REAL (1 run)", "grpo-s1": "GRPO (1 run)"}
# As a run alone; on a tiny model `compare` clips no gradients.
WORDS = ["--seeds", "1", "--steps", "2", *SMALL, "--no-eval.at_start", "--actor.max_norm", "1.0"]
WORDS += ["--algos", "real", "grpo"]


@pytest.fixture(scope="module")
def compared(tmp_path_factory, forked) -> tuple[Path, str]:
    """The folder of a comparison that went through, and what it printed; the benchmark has six problems."""
    out, (python, environment) = tmp_path_factory.mktemp("comparison"), forked
    rows = (tiny_task.unpack() / "eval.jsonl").read_text().splitlines(keepends=True)
    (out / "easy.jsonl").write_text("".join(rows[:6]))
    evaluation = ["--benchmarks", str(out / "easy.jsonl"), "--eval-flags=--k 2 --max-new-tokens 14 --think optional"]
    command = [python, "-m", "real_openrlhf.cli", "compare", *WORDS, *evaluation, "--out", str(out)]
    environment = {**environment, forked_workers.ALL: "1"}  # its runs and evaluations are forks too
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return out, done.stdout


def test_a_comparison_prints_and_reports_all_its_methods_and_their_evaluations(compared):
    out, printed = compared
    page = (out / "report" / "index.html").read_text()
    assert all(label in page for label in ("REAL", "GRPO"))
    assert (out / "report" / "tables" / "summary.md").read_text() in printed
    table = {
        row["Setting"]: float(row["easy"])
        for row in csv.DictReader(open(out / "report/tables/benchmarks.csv"))
        if row["easy"]
    }
    for run, label in RUNS.items():
        assert json.loads((out / "runs" / run / "run.json").read_text())["status"] == "finished"
        results = json.loads((out / "runs" / run / "eval" / "results.json").read_text())["benchmarks"]["easy"]
        assert results["problems"] == 6 and table[label] == results["pass@1"]


def test_one_seed_gives_two_algorithms_the_same_prompts_updates_and_first_rollouts(compared):
    real, grpo = (
        [
            line
            for line in map(json.loads, open(compared[0] / "runs" / run / "metrics.jsonl"))
            if line["phase"] == "train"
        ]
        for run in RUNS
    )
    for name in ("rollout/prompts_crc", "update/rollouts_crc"):
        assert [line[name] for line in real] == [line[name] for line in grpo]
    assert real[0]["rollout/pass_rate"] == grpo[0]["rollout/pass_rate"]
    # Then they are other policies; two of them may well be right equally often, so not by the pass rate.
    assert real[1]["entropy_loss"] != grpo[1]["entropy_loss"]
