"""The formulas need PyTorch and nothing else, and are tested with little more: `tests/run.sh maths`."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
# An import of anything else that the project needs somewhere fails.
ONLY_WHAT_THE_MATHS_NEEDS = """
import importlib.abc, sys
REFUSED = "openrlhf vllm ray deepspeed transformers pyarrow matplotlib math_verify tqdm numpy".split()
class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
"""


def maths(tmp_path, python3: str, *options: str) -> subprocess.CompletedProcess:
    """`tests/run.sh maths` where `python3` is this script."""
    for name in ("python3", "python"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{python3}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "REAL_VENV": str(tmp_path / "none")}
    words = ["bash", str(REPOSITORY / "tests/run.sh"), "maths", *options]
    return subprocess.run(words, env=environment, capture_output=True, text=True)


def test_the_maths_is_tested_with_torch_pytest_and_hypothesis_alone(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(ONLY_WHAT_THE_MATHS_NEEDS)
    python3 = f'PYTHONPATH="{tmp_path}" exec "{sys.executable}" "$@"'
    options = "-p no:cacheprovider -p no:xdist -k proposition_5_1_closed"
    done = maths(tmp_path, python3, *options.split())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert not (tmp_path / "none").exists()  # nothing is set up


def test_what_the_maths_needs_is_named_where_it_is_missing(tmp_path):
    done = maths(tmp_path, "exit 1")
    assert done.returncode == 1
    assert done.stderr == (
        "tests/run.sh: error: no Python here has what these tests need: pip install torch pytest hypothesis\n"
    )
