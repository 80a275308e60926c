"""The machine: GPUs, and whether it is ready to train."""
