"""Dropout's draws are a function of the seed and the step, so that a resumed run needs no generator's state."""

import torch


def reseed(seed: int, updates: int, rank: int) -> None:
    """Before the training of a rollout batch, by how often the weights were updated until then."""
    torch.manual_seed((seed * 1_000_003 + updates) * 1_000_003 + rank)
