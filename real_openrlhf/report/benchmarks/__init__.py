"""Scores on benchmarks: ours beside the paper's, and differences between methods."""
