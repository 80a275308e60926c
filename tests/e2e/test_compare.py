"""Algorithms side by side: one Ray and one engine for all runs, an interrupt in the middle, the report at the end."""

import json
import subprocess
import sys
import time

import psutil
import pytest

ALGOS = ("gspo", "real", "real_bce")
TIMES = ("time", "timing/")


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("comparison")


def start(out, *algos):
    command = [sys.executable, "-m", "real_openrlhf.cli", "compare", "--seeds", "1", "--steps", "2", "--out", str(out)]
    return subprocess.Popen([*command, "--algos", *algos], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def status(out, name):
    path = out / "runs" / f"{name}-s1" / "run.json"
    return json.loads(path.read_text())["status"] if path.exists() else None


def metrics(folder):
    """Every logged number but the times, of the evaluation before the first step and of the steps."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["phase"] == "train" or line["step"] == 0]
    return [{key: value for key, value in line.items() if not key.startswith(TIMES)} for line in lines]


@pytest.fixture(scope="module")
def interrupted(out):
    """SIGTERM while the third of three runs starts."""
    child = start(out, *ALGOS)
    below = []
    while status(out, ALGOS[-1]) is None and child.poll() is None:
        time.sleep(1)
    time.sleep(3)
    below = psutil.Process(child.pid).children(recursive=True)
    child.terminate()
    output, _ = child.communicate(timeout=120)
    return child.returncode, output, below


def test_an_interrupt_ends_everything_and_says_how_to_go_on(out, interrupted):
    code, output, below = interrupted
    assert code == 143, output
    assert [status(out, name) for name in ALGOS] == ["finished", "finished", "failed"]
    assert "the same command goes on" in output
    assert not psutil.wait_procs(below, timeout=60)[1]  # no Ray, no engine is left


def test_a_run_in_a_session_is_the_run_that_it_is_alone(out, interrupted, real):
    """The same seed gives the same numbers, bit for bit, whatever the engine has served before."""
    together = metrics(out / "runs" / "real-s1")
    assert len(together) == 3
    assert together == metrics(real.folder)[:3]


def test_one_seed_gives_two_algorithms_the_same_prompts_and_first_rollouts(out, interrupted):
    real, gspo = (metrics(out / "runs" / f"{name}-s1")[1:] for name in ("real", "gspo"))
    assert [line["rollout/prompts_crc"] for line in real] == [line["rollout/prompts_crc"] for line in gspo]
    assert real[0]["rollout/pass_rate"] == gspo[0]["rollout/pass_rate"]
    assert real[1]["rollout/pass_rate"] != gspo[1]["rollout/pass_rate"]  # then they are other policies


def test_the_same_command_goes_on_and_reports(out, interrupted):
    before = (out / "runs" / "gspo-s1" / "run.json").stat().st_mtime
    child = start(out, *ALGOS)
    output, _ = child.communicate(timeout=600)
    assert child.returncode == 0, output
    assert "3 runs of 2 steps, 2 already finished" in output
    assert (out / "runs" / "gspo-s1" / "run.json").stat().st_mtime == before
    assert [status(out, name) for name in ALGOS] == ["finished"] * 3
    page = (out / "report" / "index.html").read_text()
    assert all(label in page for label in ("REAL with BCE", "GSPO"))
