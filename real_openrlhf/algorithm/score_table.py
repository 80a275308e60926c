"""The scores of a wave across ranks: the only thing that data-parallel ranks tell each other."""

import torch
import torch.distributed as dist
from torch import Tensor


def share_scores(
    scores: Tensor, places: Tensor, count: int, total: Tensor, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor]:
    """((count,) scores of all ranks in float64, `total` added up): the same on every rank, by one collective.

    Each rank puts its own scores at `places`, no two ranks at the same one. A score that is nan or infinite on one
    rank is so on all of them: they stop together. Without torch.distributed it is the local table.
    """
    table = torch.zeros(count + 1, dtype=torch.float64, device=scores.device)
    table[places.to(scores.device)] = scores.detach().double()
    table[-1] = total.detach()
    table = sum_over_ranks(table, group)
    return table[:-1], table[-1]


def sum_over_ranks(values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Totals of numbers that each rank has a part of."""
    values = values.detach().clone()
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(values, op=dist.ReduceOp.SUM, group=group)
    return values
