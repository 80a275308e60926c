"""The groups of a batch, each the responses of a prompt: no other module counts rows of a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its import takes seconds
    from openrlhf.trainer.ppo_utils.experience import Experience


def groups_of(samples: list[Experience], args: SimpleNamespace) -> list[list[Experience]]:
    """The responses of each prompt. OpenRLHF returns them side by side; a prompt may be in a batch twice."""
    size = args.rollout.n_samples_per_prompt
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]
    for number, group in enumerate(groups):
        for place, sample in enumerate(group):
            if sample.prompts != group[0].prompts:
                first = number * size
                raise ValueError(f"rollout {first + place} is not of the same prompt as rollout {first}")
    return groups
