"""Methods side by side on the real stack: their report and evaluation, and what kills, shells and bad machines do."""

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from every import every
from small_runs import LEARNING

from real_openrlhf.training import tiny_task

SECONDS = 900
TIMES = ("time", "timing/")
EVALUATION = "--k 2 --max-new-tokens 14 --think optional"
PAIR = ["real-s1", "grpo-s1"]
# As a run alone; on a tiny model `compare` clips no gradients.
TWO = ["--seeds", "1", "--steps", "2", *LEARNING, "--actor.max_norm", "1.0", "--algos", "real", "grpo"]
started: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def ended():
    yield
    while started:
        started.pop().terminate()


def start(words: list[str], out: Path, python=sys.executable, environment=None) -> subprocess.Popen:
    out.mkdir(exist_ok=True)
    with open(out / "said.log", "a") as log:
        command = [python, "-m", "real_openrlhf.cli", "compare", *words, "--out", str(out)]
        started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
        return started[-1]


def finish(child: subprocess.Popen, out: Path, code: int | None = 0) -> str:
    """What it said, and those before it."""
    child.wait(SECONDS)
    said = (out / "said.log").read_text()
    assert code is None or child.returncode == code, said[-4000:]
    return said


def benchmark(folder: Path) -> list[str]:
    """The words for a benchmark of six problems."""
    rows = (tiny_task.unpack() / "eval.jsonl").read_text().splitlines(keepends=True)
    (folder / "easy.jsonl").write_text("".join(rows[:6]))
    return ["--benchmarks", str(folder / "easy.jsonl"), f"--eval-flags={EVALUATION}"]


def run_of(out: Path, run: str) -> Path:
    return out / "runs" / run


def status(folder: Path) -> str | None:
    path = folder / "run.json"
    return json.loads(path.read_text())["status"] if path.exists() else None


def stepped(folder: Path) -> bool:
    file = folder / "metrics.jsonl"
    return file.exists() and '"phase": "train"' in file.read_text()


def until(true, *children: subprocess.Popen) -> None:
    while not true():
        assert all(child.poll() is None for child in children), "it ended before that"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def compared(tmp_path_factory, forked):
    """The folder of a comparison that went through."""
    out = tmp_path_factory.mktemp("comparison")
    finish(start([*TWO, *benchmark(out)], out, *forked), out)
    assert [status(run_of(out, run)) for run in PAIR] == ["finished"] * 2
    return out


def metrics(folder):
    """Every logged number but the times, of the evaluation before the first step and of the steps."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["phase"] == "train" or line["step"] == 0]
    return [{key: value for key, value in line.items() if not key.startswith(TIMES)} for line in lines]


def test_a_comparison_prints_and_reports_all_its_methods(compared):
    page, said = (compared / "report" / "index.html").read_text(), (compared / "said.log").read_text()
    assert all(label in page for label in ("REAL", "GRPO"))
    assert (compared / "report" / "tables" / "summary.md").read_text() in said


def test_each_trained_model_is_evaluated_and_its_score_is_in_the_report(compared):
    table = [*csv.DictReader(open(compared / "report" / "tables" / "benchmarks.csv"))]
    for run in PAIR:
        results = json.loads((run_of(compared, run) / "eval" / "results.json").read_text())
        assert results["benchmarks"]["easy"]["problems"] == 6
        label = {"real-s1": "REAL (1 run)", "grpo-s1": "GRPO (1 run)"}[run]
        (score,) = [float(row["easy"]) for row in table if row["Method"] == label]
        assert score == results["benchmarks"]["easy"]["pass@1"]


def test_one_seed_gives_two_algorithms_the_same_prompts_updates_and_first_rollouts(compared):
    real, grpo = (metrics(run_of(compared, run))[1:] for run in PAIR)
    for name in ("rollout/prompts_crc", "update/rollouts_crc"):
        assert [line[name] for line in real] == [line[name] for line in grpo]
    assert real[0]["rollout/pass_rate"] == grpo[0]["rollout/pass_rate"]
    # Then they are other policies; two of them may well be right equally often, so not by the pass rate.
    assert real[1]["entropy_loss"] != grpo[1]["entropy_loss"]


@every
def test_two_shells_share_the_runs_through_a_kill_an_interrupt_and_their_repetition(compared, tmp_path):
    """One is killed in a training, which the other then makes, unless it is interrupted first. Nothing runs twice."""
    words = [*TWO, *benchmark(tmp_path)]
    first = start(words, tmp_path)
    until(lambda: stepped(run_of(tmp_path, "real-s1")), first)
    second = start(words, tmp_path)
    until(lambda: status(run_of(tmp_path, "grpo-s1")) == "running", first, second)
    first.kill()
    until(lambda: stepped(run_of(tmp_path, "grpo-s1")), second)
    below = psutil.Process(second.pid).children(recursive=True)
    second.send_signal(signal.SIGTERM)
    said = finish(second, tmp_path, 143)
    assert "Run the same command again" in said
    assert not psutil.wait_procs(below, timeout=60)[1]  # no Ray, no engine is left
    for shell in [start(words, tmp_path) for _ in range(2)]:
        finish(shell, tmp_path)
    for run in PAIR:
        assert status(run_of(tmp_path, run)) == "finished"
        lines = [json.loads(line) for line in (run_of(tmp_path, run) / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines if line["phase"] == "train"] == [1, 2]
        samples = (run_of(tmp_path, run) / "eval" / "samples.jsonl").read_text().splitlines()
        assert len(samples) == 6 * 2
    tables = [(out / "report" / "tables" / "results.csv").read_text() for out in (tmp_path, compared)]
    assert tables[0] == tables[1]
    written = run_of(tmp_path, "real-s1").joinpath("run.json").stat().st_mtime
    assert "2 runs, 2 finished" in finish(start(words, tmp_path), tmp_path)
    assert run_of(tmp_path, "real-s1").joinpath("run.json").stat().st_mtime == written
