"""Labels, and the groups of a score table with the per-group sums that formulas are made of."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

POSITIVE = 1
NEGATIVE = 0
IGNORED = -1  # the verifier failed or timed out: on neither side, weight exactly 0
UNPARSABLE = -2  # a negative without a readable answer: one level below NEGATIVE for objectives that have levels


@dataclass(frozen=True)
class Groups:
    """Which rollout is in which group and on which side."""

    labels: Tensor  # (K,)
    index: Tensor  # (K,) position of the rollout's group, 0 .. count-1
    count: int

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

    def ignoring(self, where: Tensor) -> Groups:
        """The same groups with the chosen rollouts on neither side."""
        return replace(self, labels=self.labels.masked_fill(where, IGNORED))

    def uniform(self) -> Tensor:
        """(K,): the rollout's group holds one label only among its valid rollouts."""
        big = torch.iinfo(torch.long).max
        labels = self.labels.long()
        low = labels.new_full((self.count,), big)
        low = low.scatter_reduce(0, self.index, torch.where(self.valid, labels, big), "amin")
        high = labels.new_full((self.count,), -big)
        high = high.scatter_reduce(0, self.index, torch.where(self.valid, labels, -big), "amax")
        return (low >= high)[self.index]
