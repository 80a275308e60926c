"""What a rank runs of the loss alone, for somebody else's trainer."""

import math

import torch
import torch.distributed as dist

from real_openrlhf.algorithm.policy_loss import check_whole_groups, real_policy_loss


def told_torn(groups: list[list[int]], *options) -> str:
    """What each rank is told of its part of the groups."""
    try:
        check_whole_groups(groups[dist.get_rank()], *options)
    except ValueError as error:
        return str(error)
    return ""


PART_GROUPS = "a b a b a b c c".split()
PART_REWARDS = [1.0, 0.0, 0.0, 1.0, math.nan, 0.0, 1.0, 1.0]


def loss_of_part(rows: list[list[int]], **options) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """(loss, gradient, metrics) of `real_policy_loss` over this rank's rollouts of the eight, whose table all know."""
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(8, 4, dtype=torch.float64, generator=generator) - 1
    mask = torch.arange(4) < torch.tensor([4, 1, 3, 2, 4, 0, 2, 3])[:, None]
    new = (old + 0.3 * torch.randn(8, 4, dtype=torch.float64, generator=generator)).requires_grad_()
    own = rows[dist.get_rank() if dist.is_initialized() else 0]
    columns = [PART_REWARDS[row] for row in own], [PART_GROUPS[row] for row in own]
    loss, metrics = real_policy_loss(new[own], old[own], mask[own], *columns, **options)
    return loss.detach(), torch.autograd.grad(loss, new)[0], metrics
