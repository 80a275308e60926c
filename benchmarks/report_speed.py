"""How long the report takes on ten runs of the paper's length. The bar: 60 s, start of Python included.

python benchmarks/report_speed.py
"""

import importlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR, STEPS = 60, 1400

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
invented_runs = importlib.import_module("invented_runs")

with tempfile.TemporaryDirectory() as folder:
    runs = Path(folder) / "runs"
    for algo, seeds in {"real": 3, "real_bce": 1, "real_no_anchor": 1, "grpo": 2, "dapo": 1, "gspo": 1}.items():
        for seed in range(1, seeds + 1):
            invented_runs.write_run(runs, algo, seed, steps=STEPS)
    invented_runs.write_events(runs / "grpo-seed9", "grpo", 9, steps=STEPS)  # the tenth is a TensorBoard log
    command = [sys.executable, "-m", "real_openrlhf.cli", "report", str(runs), "--out", str(Path(folder) / "out")]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - start
print(f"ten runs of {STEPS} steps: {seconds:.1f} s, bar {BAR} s")
sys.exit(seconds > BAR)
