"""The message from the controller to a training rank: rollouts and updates, in fields instead of log entries."""

from dataclasses import dataclass, field, fields

import torch
from openrlhf.trainer.ppo_utils.experience import (
    Experience,
    make_experience_batch,
    remove_padding_in_sequences,
    split_experience_batch,
)

from real_openrlhf.algorithm.step_plan import RankShare


@dataclass
class PlannedExperience(Experience):
    """One rank's rollouts of a batch, and the updates in which the rank trains them."""

    share: RankShare = field(kw_only=True)

    @classmethod
    def from_items(cls, items: list[Experience], share: RankShare) -> "PlannedExperience":
        """Upstream's batch, with `info` as tensors again: upstream leaves lists, which its statistics cannot read."""
        batch = make_experience_batch(items)
        batch.info = {name: torch.stack([torch.as_tensor(value) for value in batch.info[name]]) for name in batch.info}
        return cls(**{column.name: getattr(batch, column.name) for column in fields(Experience)}, share=share)


class PlanBuffer:
    """Replaces upstream's replay buffer on a rank: holds the rank's share of one rollout batch."""

    share: RankShare  # of the batch in `items`

    def __init__(self) -> None:
        self.items: list[Experience] = []

    def append(self, experience: PlannedExperience) -> None:
        experience.to_device(torch.device("cpu"))
        self.share = experience.share
        self.items = remove_padding_in_sequences(split_experience_batch(experience))

    def clear(self) -> None:
        self.items = []

    def __len__(self) -> int:
        return len(self.items)
