"""Tokens by their ratio pi / pi_old, and the size of their gradients: the paper's Table 1."""

import torch
from torch import Tensor

from real_openrlhf.algorithm.formulas import SUM, TOKEN_SCORES
from real_openrlhf.algorithm.groups import NEGATIVE, POSITIVE, UNPARSABLE
from real_openrlhf.algorithm.metrics import COUNT, RATIO_CLASSES, RATIO_RANGES

RATIO_EPSILON = 0.2
# tokens, and the sum of their gradient magnitudes
RATIO_TABLE_SHAPE = torch.Size((len(RATIO_CLASSES), len(RATIO_RANGES), 2))


def token_log_ratios(log_probs: Tensor, old_log_probs: Tensor, action_mask: Tensor) -> Tensor:
    """(B, T) log(pi / pi_old) without a graph, 0 where nothing was sampled."""
    mask = action_mask.bool()
    return torch.where(mask, log_probs, 0.0).detach() - torch.where(mask, old_log_probs, 0.0).detach()


def token_gradients(
    family: str,
    log_probs: Tensor,
    old_log_probs: Tensor,
    action_mask: Tensor,
    labels: Tensor,
    clip: tuple[float, float] = (0.2, 0.2),
) -> Tensor:
    """(B, T) |W| of each token of a baseline, whose gradient is the token mean of W_t grad log pi(o_t).

    The advantage is taken as 1, as in the paper's Table 1. Clipped tokens have |W| 0: `grpo` clips each token, `gspo`
    whole rollouts by their mean log-ratio.
    """
    log_ratio = token_log_ratios(log_probs, old_log_probs, action_mask)
    ratio = log_ratio.exp()
    if family == "gspo":
        mean = log_ratio.sum(-1, keepdim=True) / action_mask.bool().sum(-1, keepdim=True).clamp(min=1)
        ratio = mean.exp().expand_as(ratio)
    positive = (labels == POSITIVE)[:, None]
    clipped = torch.where(positive, ratio > 1 + clip[1], ratio < 1 - clip[0])
    return torch.where(clipped, 0.0, ratio)


def rollout_gradients(
    score: str, log_probs: Tensor, old_log_probs: Tensor, action_mask: Tensor, weights: Tensor
) -> Tensor:
    """The same for objectives with one weight per response: |weight * d score / d log pi| * its tokens."""
    mask = action_mask.bool()
    new, old = (torch.where(mask, part.detach(), 0.0) for part in (log_probs, old_log_probs))
    with torch.enable_grad():
        of_tokens = TOKEN_SCORES[score.removeprefix(SUM)](new.requires_grad_(), old, old, old)
        (slopes,) = torch.autograd.grad(of_tokens.sum(), new)
    each = weights.abs().to(slopes)[:, None] * slopes.abs()
    return each * mask.sum(-1, keepdim=True) if score.startswith(SUM) else each


def ratio_table(
    log_probs: Tensor, old_log_probs: Tensor, action_mask: Tensor, labels: Tensor, gradients: Tensor
) -> Tensor:
    """A micro-batch's table of shape `RATIO_TABLE_SHAPE`, in float64 on the device of the micro-batch.

    Sum the tables over micro-batches and ranks, then call `ratio_metrics`. `gradients` come from `token_gradients` or
    `rollout_gradients`. Ignored rollouts are in neither class.
    """
    mask = action_mask.bool()
    ratio = token_log_ratios(log_probs, old_log_probs, mask).exp()
    low, high = 1 - RATIO_EPSILON, 1 + RATIO_EPSILON
    ranges = (ratio < low, (ratio >= low) & (ratio < 1), (ratio >= 1) & (ratio <= high), ratio > high)
    sides = (labels == POSITIVE, (labels == NEGATIVE) | (labels == UNPARSABLE))
    magnitudes = torch.where(mask, gradients.detach(), 0.0)
    cells = []
    for side in sides:
        for inside in ranges:  # sums of masks, not selections: a selection makes the host wait for its size
            chosen = inside & mask & side[:, None]
            cells.append(torch.stack([chosen.sum().double(), torch.where(chosen, magnitudes, 0.0).double().sum()]))
    return torch.stack(cells).view(RATIO_TABLE_SHAPE)


def ratio_metrics(table: Tensor) -> dict[str, float]:
    """`RATIO_METRICS` of a summed `ratio_table`, and the numbers of tokens behind them."""
    metrics = {}
    for i, side in enumerate(RATIO_CLASSES):
        tokens = metrics[f"{COUNT}ratio/{side}"] = float(table[i, :, 0].sum())
        for j, name in enumerate(RATIO_RANGES):
            count, gradient = table[i, j].tolist()
            metrics[f"{COUNT}ratio/{side}/{name}"] = count
            metrics[f"ratio/{side}/{name}/share"] = 100 * count / max(tokens, 1)
            metrics[f"ratio/{side}/{name}/grad"] = gradient / max(count, 1)
    return metrics
