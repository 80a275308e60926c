"""Algorithms side by side: one Ray and one engine for all runs, the report at the end, and interrupts."""

import csv
import json
import subprocess
import sys
import time

import psutil
import pytest
from every import every
from small_runs import LEARNING

from real_openrlhf.training.tasks.tasks import default, prepare

TIMES = ("time", "timing/")
ALGOS = ("real", "grpo")


def start(out, python=sys.executable, environment=None, words=()) -> subprocess.Popen:
    own = ["--actor.max_norm", "1.0", *words]  # as in a run alone; on a tiny model `compare` clips no gradients
    words = ["compare", "--seeds", "1", "--steps", "2", "--out", str(out), *LEARNING, *own, "--algos", *ALGOS]
    command = [python, "-m", "real_openrlhf.cli", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(out, python, environment, words=()) -> str:
    """To its end, with both runs finished: what it said."""
    child = start(out, python, environment, words)
    output, _ = child.communicate(timeout=600)
    assert child.returncode == 0, output
    assert [status(run_of(out, algo)) for algo in ALGOS] == ["finished"] * 2
    return output


def run_of(out, algo):
    return out / "runs" / f"{algo}-s1"


def status(folder) -> str | None:
    path = folder / "run.json"
    return json.loads(path.read_text())["status"] if path.exists() else None


@pytest.fixture(scope="module")
def compared(tmp_path_factory, forked):
    """The folder of a comparison that went through."""
    out = tmp_path_factory.mktemp("comparison")
    rows = (prepare(default("reverse")) / "eval.jsonl").read_text().splitlines(keepends=True)
    (out / "easy.jsonl").write_text("".join(rows[:6]))
    flags = "--k 2 --max-new-tokens 14 --think optional"
    finish(out, *forked, ["--benchmarks", str(out / "easy.jsonl"), f"--eval-flags={flags}"])
    return out


def metrics(folder):
    """Every logged number but the times, of the evaluation before the first step and of the steps."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["phase"] == "train" or line["step"] == 0]
    return [{key: value for key, value in line.items() if not key.startswith(TIMES)} for line in lines]


def test_all_runs_and_their_report(compared):
    page = (compared / "report" / "index.html").read_text()
    assert all(label in page for label in ("REAL", "GRPO"))


def test_each_trained_model_is_evaluated_and_compared_with_grpo_by_pairs(compared):
    scores = {}
    for algo in ALGOS:
        results = json.loads((run_of(compared, algo) / "eval" / "results.json").read_text())
        scores[algo] = results["benchmarks"]["easy"]["pass@1"]
        assert results["benchmarks"]["easy"]["problems"] == 6
        assert f"{scores[algo]:.3f}" in (run_of(compared, algo) / "model" / "README.md").read_text()
    (gain,) = csv.DictReader(open(compared / "report" / "tables" / "gains.csv"))
    assert gain["Method"] == "REAL" and f"{scores['real'] - scores['grpo']:+.3f} (" in gain["easy"]
    attempts = [json.loads(path.read_text())["code"] for path in (compared / "queue").iterdir()]
    assert attempts == [0, 0]  # one each


def test_a_run_in_a_session_is_the_run_that_it_is_alone(compared, real):
    """The same seed gives the same numbers, bit for bit, whatever the engine has served before."""
    together = metrics(run_of(compared, "real"))
    assert len(together) == 3
    assert together == metrics(real.folder)[:3]


def test_one_seed_gives_two_algorithms_the_same_prompts_updates_and_first_rollouts(compared):
    real, grpo = (metrics(run_of(compared, algo))[1:] for algo in ("real", "grpo"))
    for name in ("rollout/prompts_crc", "update/rollouts_crc"):
        assert [line[name] for line in real] == [line[name] for line in grpo]
    assert real[0]["rollout/pass_rate"] == grpo[0]["rollout/pass_rate"]
    # Then they are other policies; two of them may well be right equally often, so not by the pass rate.
    assert real[1]["entropy_loss"] != grpo[1]["entropy_loss"]


@every
def test_an_interrupt_ends_everything_and_the_same_command_goes_on(tmp_path, forked):
    """SIGTERM while the second of two runs starts."""
    first, second = (run_of(tmp_path, algo) for algo in ALGOS)
    child = start(tmp_path)
    while status(second) is None and child.poll() is None:
        time.sleep(1)
    time.sleep(3)
    below = psutil.Process(child.pid).children(recursive=True)
    child.terminate()
    output, _ = child.communicate(timeout=120)
    assert child.returncode == 143, output
    assert (status(first), status(second)) == ("finished", "failed")
    assert "run the same command again for the missing runs" in output
    assert not psutil.wait_procs(below, timeout=60)[1]  # no Ray, no engine is left

    written = (first / "run.json").stat().st_mtime
    assert "2 runs of 2 steps, 1 already finished" in finish(tmp_path, *forked)
    assert (first / "run.json").stat().st_mtime == written  # what was finished was not touched
