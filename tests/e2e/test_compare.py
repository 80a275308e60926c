"""Algorithms side by side: one Ray and one engine for all runs, the report at the end, and interrupts.

A campaign whose processes are killed, or that several shells share, reports as one that nothing disturbed.
"""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from every import every
from small_runs import LEARNING

from real_openrlhf.training.tasks.tasks import default, prepare

ROOT, SECONDS = Path(__file__).resolve().parents[2], 900
TIMES = ("time", "timing/")
EVALUATION = "--k 2 --max-new-tokens 14 --think optional"
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


def benchmarks(folder: Path, *sizes: int) -> list[str]:
    """The words for benchmarks of so many problems: `easy`, `other`."""
    rows, files = (prepare(default("reverse")) / "eval.jsonl").read_text().splitlines(keepends=True), []
    for name, size in zip(("easy", "other"), sizes, strict=False):
        files.append(folder / f"{name}.jsonl")
        files[-1].write_text("".join(rows[:size]))
        rows = rows[size:]
    return ["--benchmarks", ",".join(map(str, files)), f"--eval-flags={EVALUATION}"]


def run_of(out: Path, run: str) -> Path:
    return out / "runs" / run


def attempts(out: Path, run: str) -> list[dict]:
    return [json.loads(path.read_text()) for path in sorted((out / "queue").glob(f"{run}.*.json"))]


# Two methods, as a run alone; on a tiny model `compare` clips no gradients.

PAIR = ["real-s1", "grpo-s1"]
TWO = ["--seeds", "1", "--steps", "2", *LEARNING, "--actor.max_norm", "1.0", "--algos", "real", "grpo"]


def status(folder: Path) -> str | None:
    path = folder / "run.json"
    return json.loads(path.read_text())["status"] if path.exists() else None


@pytest.fixture(scope="module")
def compared(tmp_path_factory, forked):
    """The folder of a comparison that went through."""
    out = tmp_path_factory.mktemp("comparison")
    finish(start([*TWO, *benchmarks(out, 6)], out, *forked), out)
    assert [status(run_of(out, run)) for run in PAIR] == ["finished"] * 2
    return out


def metrics(folder):
    """Every logged number but the times, of the evaluation before the first step and of the steps."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["phase"] == "train" or line["step"] == 0]
    return [{key: value for key, value in line.items() if not key.startswith(TIMES)} for line in lines]


def test_a_comparison_reports_all_its_methods(compared):
    page = (compared / "report" / "index.html").read_text()
    assert all(label in page for label in ("REAL", "GRPO"))


def test_each_trained_model_is_evaluated_and_its_score_is_in_the_report(compared):
    table = [*csv.DictReader(open(compared / "report" / "tables" / "benchmarks.csv"))]
    for run in PAIR:
        results = json.loads((run_of(compared, run) / "eval" / "results.json").read_text())
        assert results["benchmarks"]["easy"]["problems"] == 6
        label = {"real-s1": "REAL (1 run)", "grpo-s1": "GRPO (1 run)"}[run]
        (score,) = [float(row["easy"]) for row in table if row["Method"] == label]
        assert score == results["benchmarks"]["easy"]["pass@1"]
    assert [[one["code"] for one in attempts(compared, run)] for run in PAIR] == [[0], [0]]


def test_one_seed_gives_two_algorithms_the_same_prompts_updates_and_first_rollouts(compared):
    real, grpo = (metrics(run_of(compared, run))[1:] for run in PAIR)
    for name in ("rollout/prompts_crc", "update/rollouts_crc"):
        assert [line[name] for line in real] == [line[name] for line in grpo]
    assert real[0]["rollout/pass_rate"] == grpo[0]["rollout/pass_rate"]
    # Then they are other policies; two of them may well be right equally often, so not by the pass rate.
    assert real[1]["entropy_loss"] != grpo[1]["entropy_loss"]


@every
def test_an_interrupt_ends_everything_and_the_same_command_goes_on(tmp_path, forked):
    """SIGTERM while the second of two runs starts."""
    first, second = (run_of(tmp_path, run) for run in PAIR)
    child = start(TWO, tmp_path)
    while status(second) is None and child.poll() is None:
        time.sleep(1)
    time.sleep(3)
    below = psutil.Process(child.pid).children(recursive=True)
    child.terminate()
    said = finish(child, tmp_path, 143)
    assert (status(first), status(second)) == ("finished", "failed")
    assert "run the same command again for the missing runs" in said
    assert not psutil.wait_procs(below, timeout=60)[1]  # no Ray, no engine is left

    written = (first / "run.json").stat().st_mtime
    assert "2 runs of 2 steps, 1 already finished" in finish(start(TWO, tmp_path, *forked), tmp_path)
    assert (first / "run.json").stat().st_mtime == written  # what was finished was not touched


# The campaign `smoke`, disturbed.

STEPS = 3
RUNS = [f"{algo}-s{seed}" for seed in (1, 2) for algo in ("real", "grpo", "dapo")]


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> list[str]:
    """The campaign with two small benchmarks."""
    return ["--campaign", "smoke", "--seeds", "2", *benchmarks(tmp_path_factory.mktemp("benchmarks"), 4, 4)]


def tables(out: Path) -> dict[str, str]:
    """The report's numbers; none of them is a time."""
    return {path.name: path.read_text() for path in sorted((out / "report" / "tables").glob("*.csv"))}


def refuse_repeats(out: Path) -> None:
    """Each run has each step once, and each sample of its evaluation."""
    assert sorted(path.name for path in (out / "runs").iterdir()) == sorted(RUNS)
    for run in (out / "runs").iterdir():
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines if line["phase"] == "train"] == [*range(1, STEPS + 1)]
        samples = [json.loads(line) for line in (run / "eval" / "samples.jsonl").read_text().splitlines()]
        assert len({(one["id"], one["sample"]) for one in samples}) == len(samples) == 2 * 4 * 2


def of_runs(out: Path) -> dict[str, list[dict]]:
    return {run: attempts(out, run) for run in RUNS}


def below(child: subprocess.Popen) -> Iterator[psutil.Process]:
    yield from psutil.Process(child.pid).children(recursive=True)


def has(text: str) -> Callable[[psutil.Process], bool]:
    def found(process: psutil.Process) -> bool:
        try:
            return text in " ".join(process.cmdline())
        except psutil.Error:
            return False

    return found


def engines(child: subprocess.Popen) -> Iterator[psutil.Process]:
    """Of the evaluation that runs now."""
    for evaluation in filter(has("cli eval "), below(child)):
        yield from filter(has("spawn_main"), evaluation.children())


def until(true: Callable[[], bool], child: subprocess.Popen) -> None:
    while not true():
        assert child.poll() is None, "it ended before the place to kill it was reached"
        time.sleep(0.2)


def sampled(out: Path, run: str) -> bool:
    file = out / "runs" / run / "eval" / "samples.jsonl"
    return file.exists() and file.stat().st_size > 0


def stepped(out: Path, run: str) -> bool:
    file = out / "runs" / run / "metrics.jsonl"
    return file.exists() and '"phase": "train"' in file.read_text()


@pytest.fixture(scope="module")
def undisturbed(words, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    finish(start(words, out), out)
    refuse_repeats(out)
    return out


@every
def test_what_is_killed_at_five_places_gives_the_same_report_and_runs_nothing_twice(words, undisturbed, tmp_path):
    out = tmp_path
    child = start(words, out)  # 1: the command, in its first training
    until(lambda: stepped(out, "real-s1"), child)
    child.kill()
    child.wait()

    child = start(words, out)  # 2: an engine, in the first evaluation
    until(lambda: any(engines(child)), child)
    next(engines(child)).kill()
    until(lambda: stepped(out, "grpo-s1"), child)  # 3: a rank of the policy, while the next one trains
    next(filter(has("ray::PolicyModelActor"), psutil.process_iter())).kill()
    until(lambda: sampled(out, "dapo-s1"), child)  # 4: the command, in an evaluation
    child.kill()
    child.wait()

    child = start(words, out)  # 5: the trainer, in a training
    until(lambda: stepped(out, "real-s2"), child)
    next(filter(has("cli.train_ppo_ray"), below(child))).kill()
    finish(child, out, None)

    finish(start(words, out), out)
    refuse_repeats(out)
    assert tables(out) == tables(undisturbed) != {}
    said = {run: [one.get("code") for one in made] for run, made in of_runs(out).items()}
    assert all(codes[-1] == 0 and codes.count(0) == 1 for codes in said.values()), said
    assert len(said["grpo-s2"]) == 1  # which nothing disturbed


@every
def test_four_shells_make_each_run_once_and_take_over_what_a_killed_one_had(words, undisturbed, tmp_path):
    shells = [start(words, tmp_path) for _ in range(4)]
    until(lambda: stepped(tmp_path, "real-s1"), shells[0])
    holder = next(one for one in attempts(tmp_path, "real-s1"))["process"]
    (killed,) = (shell for shell in shells if shell.pid == holder)
    killed.kill()
    for shell in shells:
        finish(shell, tmp_path, None if shell is killed else 0)
    refuse_repeats(tmp_path)
    assert tables(tmp_path) == tables(undisturbed)
    said = {run: [(one["process"], one.get("code")) for one in made] for run, made in of_runs(tmp_path).items()}
    assert [code for _, code in said.pop("real-s1")] == [None, 0]
    assert all([code for _, code in made] == [0] for made in said.values()), said
    assert len({process for made in said.values() for process, _ in made}) > 1


@every
def test_a_machine_that_starts_no_method_leaves_the_rest_to_others(tmp_path):
    """No machine has so much memory. On a good one the same command begins with the method that was not tried."""
    words = ["--seeds", "1", "--steps", "2", "--algos", "real", "grpo", "dapo"]
    said = finish(start(words, tmp_path, environment={**os.environ, "VLLM_CPU_KVCACHE_SPACE": "100000"}), tmp_path, 1)
    assert "grpo and real failed before a first step" in said and "--run-name" not in said
    assert sorted(path.name for path in (tmp_path / "queue").iterdir()) == ["grpo-s1.1.json", "real-s1.1.json"]
    said = finish(start(words, tmp_path), tmp_path)
    assert said.index("--- dapo-s1") < said.rindex("--- real-s1")
    assert [status(run_of(tmp_path, f"{algo}-s1")) for algo in ("real", "grpo", "dapo")] == ["finished"] * 3


@every
def test_tasks_of_slurm_share_the_runs_and_go_on_after_a_time_limit(words, undisturbed, tmp_path):
    """The limit falls into a training, and for the requeued tasks into an evaluation: each task gets the warning."""
    out, scontrol = tmp_path / "out", tmp_path / "bin/scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\n[ "$1" = requeue ] && touch "{tmp_path}/requeue-$2"\n')
    scontrol.chmod(0o755)
    path = f"{scontrol.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "REAL_VENV": sys.prefix, "SLURM_SUBMIT_DIR": str(ROOT)}

    def task(number: int) -> subprocess.Popen:
        command = ["bash", "examples/scripts/slurm_compare.sbatch", *words, "--out", str(out)]
        own = {"SLURM_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": str(number), "SLURM_PROCID": "0"}
        with open(tmp_path / f"slurm-{number}.log", "a") as log:
            started.append(subprocess.Popen(command, env=environment | own, cwd=ROOT, stdout=log, stderr=log))
        return started[-1]

    tasks, restarts = [task(0), task(1)], [0, 0]
    for limit in (run_of(out, "real-s1") / "rollouts.jsonl", run_of(out, "real-s1") / "eval/samples.jsonl", None):
        while any(one.poll() is None for one in tasks) and not (limit and limit.exists() and limit.stat().st_size):
            time.sleep(0.1)
        for one in tasks:
            one.send_signal(signal.SIGUSR1)
        for number, one in enumerate(tasks):
            one.wait(SECONDS)
            if (asked := tmp_path / f"requeue-{number}").exists():
                asked.unlink()
                tasks[number], restarts[number] = task(number), restarts[number] + 1
    said = [(tmp_path / f"slurm-{number}.log").read_text() for number in (0, 1)]
    assert [one.returncode for one in tasks] == [0, 0] and max(restarts) == 2, said
    refuse_repeats(out)
    assert tables(out) == tables(undisturbed)
    assert "interrupted by SIGTERM" in said[0] + said[1]
