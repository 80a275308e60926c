"""`on_a_gpu.sh first-day`, whole, in small on CPU: its pack, and vLLM's second model runner (V2) in a training that
lets the engine sleep. A comparison with evaluations by default: test_train.py."""

import json
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from every import every

from real_openrlhf.cli import main
from real_openrlhf.training import tiny_task

ROOT = Path(__file__).resolve().parents[2]
PARTS = "doctor", "exact", "head", "kernels", "step", "train", "hundred"
RUNS = "real-s1", "real_fixed_weights-s1"

pytestmark = every


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("first")


@pytest.fixture(scope="module")
def ask(folder):
    """ask() runs it. Another library's broken head costs a row of a table only."""
    (folder / "liger_kernel").mkdir()
    (folder / "liger_kernel/__init__.py").write_text("raise ImportError('no GPU here')")
    rows = (tiny_task.unpack() / "eval.jsonl").read_text().splitlines(keepends=True)
    (folder / "easy.jsonl").write_text("".join(rows[:6]))
    asked = {"SMALL": "all", "OUT": str(folder / "day"), "PYTHONPATH": str(folder)}
    words = ["bash", ROOT / "benchmarks/on_a_gpu.sh", "first-day"]

    def ask() -> str:
        environment = {**os.environ, **asked, "BENCHMARKS": str(folder / "easy.jsonl")}
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    return ask


@pytest.fixture(scope="module")
def said(ask) -> str:
    return ask()


@pytest.fixture(scope="module")
def out(folder, said) -> Path:
    return folder / "day"


def trained(run: Path) -> list[dict]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["phase"] == "train"]


def test_the_first_day_on_a_gpu_in_small_and_the_pack_that_it_sends(ask, said, out, tmp_path):
    assert {file.stem for file in out.glob("*.done")} == {*PARTS}
    assert "liger: exit code 1" in said and "| ours |" in said and "mean gap of V2, of V1's: " in said
    for name in ("z of REAL", "pass rate of REAL less its fixed-weight control", "gap between vLLM and the policy"):
        assert name in said
    assert ask().count("done before") == len(PARTS)

    with tarfile.open(f"{out}.tar.gz") as pack:
        pack.extractall(tmp_path / "sent", filter="data")
    assert (tmp_path / "sent/machine.txt").exists() and len([*(out / "runs").iterdir()]) == 2
    assert not [*(tmp_path / "sent").rglob("*.safetensors")]
    assert main(["report", str(tmp_path / "sent/runs"), "--out", str(tmp_path / "report")]) == 0
    assert "REAL" in (tmp_path / "report/index.html").read_text()


@pytest.mark.parametrize("runner", ["v0", "v1"])
def test_either_runner_follows_the_policy_and_its_engine_wakes_in_the_right_order(said, out, runner):
    """Weights wake before their hand-over, keys and values after it: by then the policy has given its memory back."""
    steps, log = trained(out / "three" / runner), (out / "three" / runner / "train.log").read_text()
    assert len(steps) == 3 and ("V2 Model Runner" in log) == (runner == "v1")
    assert max(step["sampling/logprob_diff_mean"] for step in steps) < 0.02
    assert max(step["real/score_drift"] for step in steps) < 1e-3
    calls = re.findall(r"engine: (sleep|reload|wake_up .*?)\s*$", log, re.MULTILINE)
    weights, keys = "wake_up ['weights']", "wake_up ['kv_cache']"
    # a first rollout, and an evaluation behind the last hand-over
    assert calls == ["sleep", weights, keys, "sleep", *3 * [weights, "reload", keys, "sleep"]]


def test_one_seed_gives_two_algorithms_the_same_prompts_updates_and_first_rollouts(out):
    """By the one update of each, whose scores are 0, REAL has its control's weights; then they are other methods."""
    (real,), (fixed,) = (trained(out / "runs" / run) for run in RUNS)
    for name in ("rollout/prompts_crc", "update/rollouts_crc", "rollout/pass_rate", "entropy_loss", "policy_loss"):
        assert real[name] == fixed[name]
    methods = [json.loads((out / "runs" / run / "run.json").read_text())["algo"] for run in RUNS]
    assert methods == ["real", "real_fixed_weights"]
