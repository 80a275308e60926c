"""Two runs on one card: the second is refused, or takes another card (real_openrlhf/machine/free_gpus.py)."""

import subprocess
import sys

import torch

SECOND = "from real_openrlhf.machine import free_gpus; free_gpus.PATIENCE = 0; free_gpus.take(1)"

torch.ones(1, device="cuda")  # a run's first memory
sys.exit(subprocess.run([sys.executable, "-c", SECOND]).returncode)
