"""The machine: GPUs, what is installed and works, signs of life of processes and why an engine ended."""
