"""One table of (rollout, label, score) across ranks: the only thing that data-parallel ranks tell each other."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class ScoreTable:
    """Rollouts of an optimizer step, one row each; all columns have shape (K,)."""

    ids: Tensor  # unique over the ranks, below 2**53
    groups: Tensor
    labels: Tensor
    truncated: Tensor  # the response hit the length limit; for the metrics only
    scores: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def finite(self) -> bool:
        """False on every rank alike if any rank's score is nan or infinite: stop together, not one rank alone."""
        return bool(self.scores.isfinite().all())

    def rows(self, ids: Tensor) -> Tensor:
        """Where the rollouts `ids` stand in a gathered table, which is sorted by id."""
        ids = ids.to(self.ids)
        rows = torch.searchsorted(self.ids, ids)
        if len(ids) and (not len(self) or not bool((self.ids[rows.clamp(max=len(self) - 1)] == ids).all())):
            raise ValueError("a rollout is not in the step's score table")
        return rows


def gather_table(local: ScoreTable, process_group: dist.ProcessGroup | None = None) -> ScoreTable:
    """All ranks' rows, sorted by rollout id, on the CPU in float64: identical everywhere, so are weights made from it.

    Ranks may hold different numbers of rows, also none. Two collectives on the device of the local scores. Without
    torch.distributed it is the local table in the same form.
    """
    # float64 holds every id exactly, so one tensor carries integers and scores.
    packed = torch.stack([getattr(local, field.name).detach().to(local.scores.device).double() for field in _COLUMNS])
    if dist.is_available() and dist.is_initialized():
        most = torch.tensor(packed.shape[1], device=packed.device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=process_group)
        padded = packed.new_full((len(_COLUMNS), int(most)), -1.0)  # no rollout has id -1
        padded[:, : packed.shape[1]] = packed
        parts = [torch.empty_like(padded) for _ in range(dist.get_world_size(process_group))]
        dist.all_gather(parts, padded, group=process_group)
        packed = torch.cat(parts, dim=1)
        packed = packed[:, packed[0] >= 0]
    packed = packed.cpu()
    packed = packed[:, packed[0].argsort()]
    ids, groups, labels = packed[:3].long()
    if len(ids) > 1 and bool((ids[1:] == ids[:-1]).any()):
        twice = int(ids[1:][ids[1:] == ids[:-1]][0])
        raise ValueError(f"rollout {twice} is in the step's score table twice: ranks must hold disjoint rollouts")
    return ScoreTable(ids, groups, labels, packed[3].bool(), packed[4])


def sum_over_ranks(values: Tensor, process_group: dist.ProcessGroup | None = None) -> Tensor:
    """Step-wide totals of numbers that each rank has a part of: tokens, a KL, the ratio table."""
    values = values.detach().clone()
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(values, op=dist.ReduceOp.SUM, group=process_group)
    return values


_COLUMNS = fields(ScoreTable)
