"""A hand-over to a real vLLM engine on CPU, of what vLLM's own reload leaves as it was."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

from every import every

PAGE = Path(__file__).resolve().parents[2] / "docs/models.py"
MODELS = runpy.run_path(str(PAGE))
PROGRAM = """
import json, runpy, sys
from pathlib import Path
models = runpy.run_path(sys.argv[1])
kind, published, more = models["MODELS"]["Qwen3-MoE"]
models["MODELS"]["tied experts"] = kind, published, more | {"tie_word_embeddings": True}
print("\\n" + json.dumps(models["Trial"]("tied experts", Path(sys.argv[2])).engine()))
"""


@every  # each alone: a tied head in e2e/test_architectures.py, experts in smoke
def test_a_tied_head_and_experts_reach_the_engine(tmp_path):
    """The engine starts with other weights, and gets two policies one after the other."""
    command = [sys.executable, "-c", PROGRAM, str(PAGE), str(tmp_path)]
    variables = os.environ | MODELS["ENVIRONMENT"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=variables)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert float(found["started"]) < MODELS["GAP"]  # before any hand-over
    assert (found["hand-over"], found["LoRA"]) == ("exact", "exact"), found
