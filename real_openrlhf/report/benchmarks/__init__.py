"""Scores on benchmarks: ours, the paper's beside them, and what one method gains over another."""
