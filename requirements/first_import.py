"""Imports what training imports: `python requirements/first_import.py`, once, by setup_env.sh.

What fails here is not ready. And what is imported is compiled, so that the first run does not wait for it.
"""

import importlib
import os
import subprocess
import sys

from real_openrlhf.base.environment import find_home
from real_openrlhf.machine.nvidia import environment_for_cpu

ENGINE = ("vllm.v1.engine.async_llm", "vllm.v1.engine.core", "vllm.model_executor.models.qwen2")  # imported on demand
ON_GPUS = ("vllm.v1.worker.gpu_worker", "vllm.v1.worker.gpu.model_runner", "vllm.v1.worker.gpu.sample.sampler")
MODULES = ("openrlhf.cli.train_ppo_ray", "ray", "deepspeed", "math_verify", "matplotlib.pyplot")
LATE = (
    "import ray, matplotlib.pyplot, math_verify, transformers.models.qwen2.modeling_qwen2, datasets, peft, deepspeed"
)

if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    find_home()
    # another core compiles what is imported last below: 32 s in place of 48 (what it cannot import, fails below too)
    beside = subprocess.Popen([sys.executable, "-c", LATE], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for name in (*ENGINE, *(() if environment_for_cpu() else ON_GPUS), *MODULES):
            importlib.import_module(name)
        from vllm import LLM  # noqa: F401
    finally:
        beside.wait()
