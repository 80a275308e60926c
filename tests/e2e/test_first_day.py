"""`on_a_gpu.sh first-day`, whole, in small on CPU."""

import os
import subprocess
import tarfile
from pathlib import Path

from real_openrlhf.cli import main

ROOT = Path(__file__).resolve().parents[2]
PARTS = "doctor", "exact", "head", "kernels", "step", "train", "hundred"


def test_the_first_day_on_a_gpu_in_small_and_the_pack_that_it_sends(tmp_path):
    """Another library's broken head costs a row of a table only."""
    (tmp_path / "liger_kernel").mkdir()
    (tmp_path / "liger_kernel/__init__.py").write_text("raise ImportError('no GPU here')")
    out, words = tmp_path / "day", ["bash", ROOT / "benchmarks/on_a_gpu.sh", "first-day"]
    asked = {"SMALL": "1", "OUT": str(out), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:]
    assert {file.stem for file in out.glob("*.done")} == {*PARTS}
    assert "liger: exit code 1" in done.stdout and "| ours |" in done.stdout
    for name in ("z of REAL", "pass rate of REAL less its fixed-weight control", "gap between vLLM and the policy"):
        assert name in done.stdout
    runs = [str(run) for run in sorted((out / "runs").iterdir())]
    assert "mean gap of V2, of V1's: " in done.stdout

    again = subprocess.run(words, env={**os.environ, **asked}, capture_output=True, text=True)
    assert again.returncode == 0 and again.stdout.count("done before") == len(PARTS)

    with tarfile.open(f"{out}.tar.gz") as pack:
        pack.extractall(tmp_path / "sent", filter="data")
    assert (tmp_path / "sent/machine.txt").exists() and len(runs) == 2
    assert not [*(tmp_path / "sent").rglob("*.safetensors")]
    assert main(["report", str(tmp_path / "sent/runs"), "--out", str(tmp_path / "report")]) == 0
    assert "REAL" in (tmp_path / "report/index.html").read_text()
