"""examples/real_in_ten_minutes.ipynb runs with torch and matplotlib alone, and prints what it stores."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALONE = """
import sys
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"deepspeed", "openrlhf", "ray", "transformers", "vllm"}:
            raise ImportError(f"{name} is not there on a notebook service")
sys.meta_path.insert(0, Refuses())
sys.argv = ["notebook.py", "--check"]
import runpy
runpy.run_path("docs/notebook.py", run_name="__main__")
"""


def test_the_notebook_runs_with_torch_and_matplotlib_alone_and_prints_what_is_stored():
    done = subprocess.run([sys.executable, "-c", ALONE], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
