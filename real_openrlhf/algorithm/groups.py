"""Labels, the table of a batch's rollouts, and its groups with the per-group sums that formulas are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from real_openrlhf.algorithm.schedule import Position, Positions

POSITIVE = 1
NEGATIVE = 0
IGNORED = -1  # the verifier failed or timed out: on neither side, weight exactly 0
UNPARSABLE = -2  # a negative without a readable answer: one level below NEGATIVE for objectives that have levels


@dataclass(frozen=True, kw_only=True)
class TrainingProgress:
    """When in its run an update is, for margins and temperatures that follow a schedule; also after a resume."""

    step: int = 1  # the rollout step, as the log counts
    steps: int = 0  # of the whole run; 0: not known

    @property
    def progress(self) -> float:
        """The share of steps done before this one: 0 in the first step, below 1 in the last one."""
        if not self.steps:
            raise ValueError("progress needs the number of steps. Give --train.max_steps")
        return min((self.step - 1) / self.steps, 1.0)


START = TrainingProgress()


@dataclass(frozen=True)
class RolloutBatch:
    """The columns of a rollout batch that are known before a forward pass, one entry a rollout each."""

    labels: Tensor
    groups: Tensor  # any number for a prompt; its rollouts come in any order
    values: Tensor | None = None  # rewards; None: 1 for a positive, else 0
    lengths: Any = None  # (K,) tokens of the response
    total_lengths: Any = None  # (K,) tokens of prompt and response; for the plan
    has_gradient: Tensor | None = None  # may have a weight or advantage other than 0; None: all
    is_trained: Tensor | None = None  # the others count in denominators only; None: all are trained

    @property
    def trained(self) -> Positions:
        every = range(len(self)) if self.is_trained is None else self.is_trained.nonzero().flatten().tolist()
        return [*map(Position, every)]

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: Tensor | Sequence[int]) -> "RolloutBatch":
        chosen: dict[str, Any] = {
            name: None if column is None else column[rows] for name, column in vars(self).items()
        }
        return RolloutBatch(**chosen)


@dataclass(frozen=True)
class Groups(TrainingProgress):
    """Which rollout is in which group and on which side."""

    labels: Tensor  # (K,)
    index: Tensor  # (K,) position of the rollout's group, 0 .. count-1
    count: int
    values: Tensor  # (K,) the rewards as they came, 0 for ignored rollouts
    lengths: Tensor  # (K,) action tokens
    ids: Tensor  # (count,) each group's number in the batch

    @classmethod
    def from_batch(cls, table: RolloutBatch, training_progress: TrainingProgress = START) -> "Groups":
        ids, index = torch.unique(table.groups, return_inverse=True)
        values = table.labels == POSITIVE if table.values is None else table.values
        values = values.float().double().masked_fill(table.labels == IGNORED, 0.0)
        lengths = torch.ones_like(table.labels) if table.lengths is None else table.lengths
        return cls(table.labels, index, len(ids), values, lengths, ids, **vars(training_progress))

    @property
    def positive(self) -> Tensor:
        return self.labels == POSITIVE

    @property
    def negative(self) -> Tensor:
        return (self.labels == NEGATIVE) | (self.labels == UNPARSABLE)

    @property
    def valid(self) -> Tensor:
        return self.labels != IGNORED

    def sum(self, values: Tensor, where: Tensor) -> Tensor:
        """Sum of the chosen values of each group, (K,) -> (count,)."""
        return values.new_zeros(self.count).index_add(0, self.index, torch.where(where, values, 0.0))

    def size(self, where: Tensor) -> Tensor:
        """How many rollouts of each group are chosen."""
        return torch.zeros(self.count, dtype=torch.long, device=where.device).index_add(0, self.index, where.long())

    def mean(self, values: Tensor, where: Tensor) -> Tensor:
        """Mean of the chosen values of each group; 0 where there are none."""
        return self.sum(values, where) / self.size(where).clamp(min=1)

    def logsumexp(self, values: Tensor, where: Tensor) -> Tensor:
        """log sum exp of the chosen values of each group; -inf, with zero gradient, where there are none."""
        values = values.masked_fill(~where, -torch.inf)
        top = values.new_full((self.count,), -torch.inf).scatter_reduce(0, self.index, values.detach(), "amax")
        top = torch.where(top == -torch.inf, 0.0, top)
        total = self.sum((values - top[self.index]).exp(), where)
        empty = self.size(where) == 0
        return torch.where(empty, -torch.inf, top + torch.where(empty, 1.0, total).log())

    def logmeanexp(self, values: Tensor, where: Tensor) -> Tensor:
        """log mean exp of the chosen values of each group; -inf, with zero gradient, where there are none."""
        return self.logsumexp(values, where) - self.size(where).clamp(min=1).to(values).log()

    def std(self, values: Tensor, where: Tensor) -> Tensor:
        """Standard deviation of the chosen values of each group, the population's; 0 where there are none."""
        return self.mean((values - self.mean(values, where)[self.index]) ** 2, where).sqrt()

    def zscores(self, values: Tensor, where: Tensor) -> Tensor:
        """(K,) the chosen values less their group's mean, over its standard deviation; 0 where they are all equal."""
        chosen = where & ~self.ignoring(~where).uniform(values)
        spread = self.std(values, where)[self.index].where(chosen, 1.0)
        return ((values - self.mean(values, where)[self.index]) / spread).where(chosen, 0.0)

    def log_softmax(self, values: Tensor, where: Tensor) -> Tensor:
        """(K,) log softmax of the chosen values of each group; 0 for the others."""
        return (values - self.logsumexp(values, where)[self.index]).where(where, 0.0)

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Positions (preferred, other) of all pairs in a group whose first member has the higher label."""
        order = self.index.argsort(stable=True)
        sizes = torch.bincount(self.index, minlength=self.count)
        repeats = sizes[self.index[order]]
        start = (sizes.cumsum(0) - sizes)[self.index[order]]
        within = torch.arange(int(repeats.sum()), device=order.device)
        within = within - (repeats.cumsum(0) - repeats).repeat_interleave(repeats)
        first = order.repeat_interleave(repeats)
        second = order[start.repeat_interleave(repeats) + within]
        ranked = self.valid[first] & self.valid[second] & (self.labels[first] > self.labels[second])
        return first[ranked], second[ranked]

    def ignoring(self, where: Tensor) -> "Groups":
        """The same groups with the chosen rollouts labelled IGNORED."""
        return replace(self, labels=self.labels.masked_fill(where, IGNORED))

    def uniform(self, values: Tensor) -> Tensor:
        """(K,) whether all valid rollouts of the rollout's group have the same value (label or reward)."""
        values, ends = values.double(), values.new_full((self.count,), torch.inf, dtype=torch.float64)
        low = ends.scatter_reduce(0, self.index, values.masked_fill(~self.valid, torch.inf), "amin")
        high = (-ends).scatter_reduce(0, self.index, values.masked_fill(~self.valid, -torch.inf), "amax")
        return (low >= high)[self.index]
