"""Imports what training imports: `python requirements/first_import.py`, once, by setup_env.sh.

What fails here is not ready. And what is imported is compiled, so that the first run does not wait for it.
"""

import importlib
import os

from real_openrlhf.base.environment import find_home
from real_openrlhf.machine.nvidia import environment_for_cpu

MODULES = ("openrlhf.cli.train_ppo_ray", "ray", "deepspeed", "math_verify", "matplotlib.pyplot")
ENGINE = ("vllm.v1.engine.async_llm", "vllm.v1.engine.core", "vllm.model_executor.models.qwen2")  # imported on demand
ON_GPUS = ("vllm.v1.worker.gpu_worker", "vllm.v1.worker.gpu.model_runner", "vllm.v1.worker.gpu.sample.sampler")

if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    find_home()
    for name in (*MODULES, *ENGINE, *(() if environment_for_cpu() else ON_GPUS)):
        importlib.import_module(name)
    from vllm import LLM  # noqa: F401
