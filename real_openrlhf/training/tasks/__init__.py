"""Tiny models and their tasks, for machines without a GPU."""
