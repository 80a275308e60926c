"""The README's first command with another Python, from the real index: REAL_TEST_PYTHON=/path/to/python3.12.

It downloads gigabytes and takes minutes, so it runs only where that variable is set.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("REAL_TEST_PYTHON")


@pytest.mark.skipif(not PYTHON, reason="set REAL_TEST_PYTHON to the Python that is to be tried")
def test_three_steps_with_another_python(tmp_path):
    venv, runs = tmp_path / "venv", tmp_path / "runs"
    words = ["bash", REPOSITORY / "examples/scripts/train_real_cpu.sh", "--max-steps", "3"]
    variables = {**os.environ, "REAL_PYTHON": PYTHON, "REAL_VENV": str(venv), "REAL_CACHE": str(tmp_path / "cache")}
    del variables["TORCH_EXTENSIONS_DIR"]
    result = subprocess.run([*words, "--runs-dir", runs, "--run-name", "three"], env=variables, text=True)
    assert result.returncode == 0
    lines = [json.loads(line) for line in (runs / "three/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["phase"] == "train"] == [1, 2, 3]
    examined = subprocess.run([venv / "bin/real-openrlhf", "doctor"], env=variables, text=True)
    assert examined.returncode == 0
