"""A campaign whose processes are killed, or that several shells share, reports as one that nothing disturbed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from every import every

from real_openrlhf.training.tasks.tasks import default, prepare

ALGOS, SEEDS, STEPS = ("real", "grpo", "dapo"), (1, 2), 3
RUNS = [f"{algo}-s{seed}" for seed in SEEDS for algo in ALGOS]
EVALUATION = "--limit 4 --k 2 --max-new-tokens 14 --think optional"
SECONDS = 900


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> list[str]:
    """The campaign `smoke` with two small benchmarks."""
    folder = tmp_path_factory.mktemp("benchmarks")
    rows = (prepare(default("reverse")) / "eval.jsonl").read_text().splitlines(keepends=True)
    files = [folder / name for name in ("easy.jsonl", "other.jsonl")]
    for number, file in enumerate(files):
        file.write_text("".join(rows[8 * number : 8 * number + 8]))
    return [
        *("compare", "--campaign", "smoke", "--seeds", str(len(SEEDS))),
        *("--benchmarks", ",".join(map(str, files)), f"--eval-flags={EVALUATION}"),
    ]


started: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def ended():
    yield
    while started:
        started.pop().terminate()


def start(words: list[str], out: Path) -> subprocess.Popen:
    out.mkdir(exist_ok=True)
    with open(out / "said.log", "a") as log:
        command = [sys.executable, "-m", "real_openrlhf.cli", *words, "--out", str(out)]
        started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        return started[-1]


def finish(child: subprocess.Popen, out: Path, code: int | None = 0) -> None:
    child.wait(SECONDS)
    assert code is None or child.returncode == code, (out / "said.log").read_text()[-4000:]


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


def attempts(out: Path) -> dict[str, list[dict]]:
    return {
        run: [json.loads(path.read_text()) for path in sorted((out / "queue").glob(f"{run}.*.json"))] for run in RUNS
    }


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

    child = start(words, out)  # 5: the session, in a training
    until(lambda: stepped(out, "real-s2"), child)
    next(filter(has("shared_ray serve"), below(child))).kill()
    finish(child, out, None)

    finish(start(words, out), out)
    refuse_repeats(out)
    assert tables(out) == tables(undisturbed) != {}
    said = {run: [one.get("code") for one in made] for run, made in attempts(out).items()}
    assert all(codes[-1] == 0 and codes.count(0) == 1 for codes in said.values()), said
    assert len(said["grpo-s2"]) == 1  # which nothing disturbed


@every
def test_four_shells_make_each_run_once_and_take_over_what_a_killed_one_had(words, undisturbed, tmp_path):
    shells = [start(words, tmp_path) for _ in range(4)]
    until(lambda: stepped(tmp_path, "real-s1"), shells[0])
    holder = next(one for one in attempts(tmp_path)["real-s1"])["process"]
    (killed,) = (shell for shell in shells if shell.pid == holder)
    killed.kill()
    for shell in shells:
        finish(shell, tmp_path, None if shell is killed else 0)
    refuse_repeats(tmp_path)
    assert tables(tmp_path) == tables(undisturbed)
    said = {run: [(one["process"], one.get("code")) for one in made] for run, made in attempts(tmp_path).items()}
    assert [code for _, code in said.pop("real-s1")] == [None, 0]
    assert all([code for _, code in made] == [0] for made in said.values()), said
    assert len({process for made in said.values() for process, _ in made}) > 1


@every
def test_tasks_of_slurm_share_the_runs_and_go_on_after_a_time_limit(words, undisturbed, tmp_path):
    """The limit falls into a training, and for the requeued tasks into an evaluation."""
    scontrol = tmp_path / "bin" / "scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f'#!/bin/sh\n[ "$1" = requeue ] && touch "{tmp_path}/requeue-$2"\n')
    scontrol.chmod(0o755)
    out, first = tmp_path / "out", tmp_path / "out" / "runs" / "real-s1"
    limits = [first / "rollouts.jsonl", first / "eval" / "samples.jsonl"]
    environment = {
        **os.environ,
        "PATH": f"{scontrol.parent}:{os.environ['PATH']}",
        "REAL_VENV": sys.prefix,
        "STUB_STATE": str(tmp_path),
        "STUB_LIMITS": ":".join(map(str, limits)),
    }
    stub, script = Path(__file__).parents[1] / "stub_slurm.py", "examples/scripts/slurm_compare.sbatch"
    array = [sys.executable, stub, "--array", "0-1", script, *words[1:], "--out", str(out)]
    subprocess.run(array, env=environment, cwd=stub.parents[1], timeout=SECONDS, check=True)
    said = [(tmp_path / f"slurm-{number}.log").read_text() for number in (0, 1)]
    ends = [(tmp_path / f"ended-{number}").read_text().split() for number in (0, 1)]
    assert [code for code, _ in ends] == ["0", "0"] and max(int(restarts) for _, restarts in ends) == 2, said
    refuse_repeats(out)
    assert tables(out) == tables(undisturbed)
    assert "interrupted by SIGTERM" in said[0] + said[1]
