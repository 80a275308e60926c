"""Imports what training imports: `python requirements/first_import.py cpu|gpu`, once, by setup_env.sh.

What fails here is not ready. And what is imported is compiled, so that the first run does not wait for it.
"""

import importlib
import os
import sys
from concurrent.futures import ProcessPoolExecutor

# The slowest first; of vLLM the engine, which it imports on demand.
MODULES = ("vllm:LLM", "openrlhf.cli.train_ppo_ray", "ray", "deepspeed", "math_verify", "matplotlib.pyplot")


def load(name: str) -> None:
    module, _, attribute = name.partition(":")
    imported = importlib.import_module(module)
    if attribute:
        getattr(imported, attribute)


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(load, (*MODULES, *(["flash_attn"] if sys.argv[1] == "gpu" else []))))
