"""The machine: GPUs, installed packages, checks, stacks of hanging processes, reasons of failed engines."""
