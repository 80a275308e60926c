"""Functions for any trainer: the loss with the paper's gradient, the KL terms, and `real_policy_loss` for a batch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD, Objective
from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, RolloutBatch
from real_openrlhf.algorithm.metrics import group_metrics
from real_openrlhf.algorithm.objective import rollout_scores, score_weights
from real_openrlhf.algorithm.settings import ObjectiveSettings


class RealPolicyLoss(nn.Module):
    """sum_k weight_k * score_k over the rollouts of one micro-batch.

    With the weights of `score_weights`, the sum of this loss over all micro-batches and ranks has exactly the gradient
    of the paper's mean loss. Its value means nothing: log `WeighedLoss.loss`. If a framework averages gradients over
    ranks or divides them by accumulation steps, the caller must compensate.
    """

    def forward(self, scores: Tensor, weights: Tensor) -> Tensor:
        """A nan or infinite score makes the loss non-finite, also with weight 0."""
        return (weights.detach().to(scores) * scores).sum()


def kl_old(log_probs: Tensor, old_log_probs: Tensor, action_mask: Tensor) -> Tensor:
    """The k3 estimate of the KL to the old policy, summed over tokens. OpenRLHF's clamps keep the gradient finite."""
    mask = action_mask.bool()
    log_ratio = (torch.where(mask, log_probs, 0.0) - torch.where(mask, old_log_probs.detach(), 0.0)).clamp(min=-10)
    k3 = ((-log_ratio).exp() - 1 + log_ratio).clamp(max=10)
    return torch.where(mask, k3, 0.0).sum()


def real_policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    action_mask: Tensor,
    rewards: Tensor | Sequence[float],
    group_ids: Tensor | Sequence[int | str],
    *,
    objective: str | Objective = "real",
    tau: float | None = None,
    uniform_groups: str = "zero_loss",
    bce_reduction: str = "sum",
    ref_log_probs: Tensor | None = None,
    rollout_log_probs: Tensor | None = None,
    settings: Mapping[str, Any] | None = None,
    over_ranks: bool = False,
    own: Mapping[str, Any] | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """(the paper's loss, mean over prompts; the `real/*` metrics), for any trainer that holds whole groups.

    `log_probs`, `old_log_probs`, `action_mask` are (B, T). Rewards are 1 (correct), 0 (incorrect) or nan (ungraded);
    an objective of graded rewards takes any finite ones. A response without action tokens is ungraded too.
    `group_ids` name each response's prompt, in any order and of any size per group. `objective` is a name,
    FILE.py:NAME or an `Objective`; `tau` None takes its default. Objectives with a reference model need
    `ref_log_probs`, scores against the sampler's log-probabilities need `rollout_log_probs`.
    `settings` are those of this objective, such as {"eta": 0.5}; `bce_reduction` is short for bce's `reduction`, and
    `own` the old name of `settings`.
    With `over_ranks` a group may be spread over the ranks of torch.distributed, and all ranks must call. Loss and
    metrics then cover all ranks, and the mean of the gradients over ranks is the gradient of the loss.
    """
    named = {"tau": tau, "reduction": None if bce_reduction == "sum" else bce_reduction}
    if settings and own:
        raise ValueError("own is the old name of settings: give settings alone")
    settings = settings or own or {}
    if twice := [name for name in settings if named.get(name) is not None]:
        raise ValueError(f"{twice[0]} is given twice, in settings too: leave one out")
    chosen = ObjectiveSettings(objective, uniform_groups, {**named, **settings})
    given = {"log_probs": log_probs, "old_log_probs": old_log_probs, "action_mask": action_mask}
    optional = {"ref_log_probs": ref_log_probs, "rollout_log_probs": rollout_log_probs}
    given |= {name: column for name, column in optional.items() if column is not None}
    shapes = [tuple(one.shape) if isinstance(one, Tensor) else type(one).__name__ for one in given.values()]
    if len({*shapes}) > 1 or not isinstance(log_probs, Tensor) or log_probs.dim() != 2:
        raise ValueError(
            f"{', '.join(given)} must be tensors of one shape (responses, tokens), got {', '.join(map(str, shapes))}"
        )
    if bool((action_mask != action_mask.bool()).any()):
        raise ValueError("action_mask must be 1 for generated tokens and 0 for all others, and has other numbers")
    labels = labels_from_rewards(rewards, chosen.objective.graded).to(log_probs.device)
    values = torch.as_tensor(rewards, dtype=torch.float64).detach().to(log_probs.device)
    groups = _group_index(group_ids).to(log_probs.device)
    for name, column in (("rewards", labels), ("group_ids", groups)):
        if column.shape != log_probs.shape[:1]:
            raise ValueError(f"{name} has shape {tuple(column.shape)}, but there are {len(log_probs)} responses")
    labels = labels.masked_fill(~action_mask.bool().any(-1), IGNORED)

    # bf16 keeps three digits: scores, the weights' inputs, are sums and means in fp32 at least
    wide = torch.promote_types(log_probs.dtype, torch.float32)
    log_probs, old_log_probs = log_probs.to(wide), old_log_probs.to(wide)
    anchors = (old_log_probs, ref_log_probs, action_mask, rollout_log_probs)
    scores = rollout_scores(chosen.score, log_probs, *anchors)
    columns, ranks, before = [scores.detach(), labels, values, action_mask.bool().sum(-1)], 1, 0
    if over_ranks:
        columns, ids, ranks, before = _of_all_ranks(columns, group_ids)
        groups = _group_index(ids).to(groups.device)
    all_scores, labels, values, lengths = columns
    table = RolloutBatch(labels, groups, values, lengths)
    weighed = score_weights(chosen, all_scores, table)
    surrogate = ranks * RealPolicyLoss()(scores, weighed.weights[before : before + len(scores)])
    metrics, _ = group_metrics(all_scores, table, weighed, chosen)
    return weighed.loss + (surrogate - surrogate.detach()), metrics


def group_weights(
    rewards: Tensor | Sequence[float],
    group_ids: Tensor | Sequence[int | str],
    *,
    objective: str | Objective = "real",
    tau: float | None = None,
) -> Tensor:
    """(responses,) advantages for a trainer: each response's weight while the policy equals the old policy.

    A positive weight makes the response more likely. The loss's gradient is minus the mean over groups of the sum of
    weight times the gradient of the score. The weights are exact for one update per batch; later updates would need
    the scores. Arguments are those of `real_policy_loss`, whose gradient is taken here at equal policies.
    """
    equal = torch.zeros(len(rewards), 1, dtype=torch.float64, requires_grad=True)
    settings = ObjectiveSettings(objective, settings={"tau": tau})
    if settings.score not in KNOWN_AT_OLD:
        raise ValueError(
            f"{settings.name} scores by {settings.score}, which rewards and groups do not tell. Take an objective of "
            f"{', '.join(KNOWN_AT_OLD)}, or real_policy_loss"
        )
    columns = (equal, equal.detach(), torch.ones_like(equal), rewards, group_ids)
    loss, _ = real_policy_loss(*columns, objective=objective, tau=tau)
    (slope,) = torch.autograd.grad(loss, equal)
    return 0.0 - len({*_listed(group_ids)}) * slope[:, 0]


def check_whole_groups(
    group_ids: Tensor | Sequence[int | str], size: int | None = None, over_ranks: bool = False
) -> None:
    """Raise a ValueError if `real_policy_loss` would see a part of a group: call this beside the loss, on every rank.

    With torch.distributed the ranks exchange their group ids, and all ranks raise if two of them hold the same group.
    With a `size` each group must have that many responses here, which also finds groups split over micro-batches.
    With `over_ranks`, as in `real_policy_loss`, a group may be spread over ranks, which together must have that many.
    """
    ranks = [Counter(ids) for ids in _from_ranks(_listed(group_ids))]
    if over_ranks:
        ranks = [sum(ranks, Counter())]
    for group in dict.fromkeys(group for groups in ranks for group in groups):
        where = [rank for rank, groups in enumerate(ranks) if group in groups]
        if len(where) > 1:
            raise ValueError(
                f"group {group!r} is split over ranks {where}. Give all responses of a prompt to one rank, or call "
                "loss and check with over_ranks=True"
            )
        if size is not None and ranks[where[0]][group] != size:
            where_held = "all ranks" if over_ranks else f"rank {where[0]}"
            raise ValueError(
                f"group {group!r} has {ranks[where[0]][group]} responses on {where_held}, not {size}. Call the loss "
                "once for all responses of a prompt, before any split into micro-batches"
            )


def _from_ranks(own: Any) -> list[Any]:
    """The objects of all ranks, in a list by rank; without torch.distributed a list of this rank's object."""
    if not (dist.is_available() and dist.is_initialized()):
        return [own]
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, own)
    return ranks


def _of_all_ranks(
    columns: list[Tensor], group_ids: Tensor | Sequence[int | str]
) -> tuple[list[Tensor], list[int | str], int, int]:
    """(columns joined over ranks, group ids of all ranks, number of ranks, number of rows before this rank's)."""
    parts = _from_ranks((torch.stack([column.double().cpu() for column in columns]), _listed(group_ids)))
    table, ids = torch.cat([rows for rows, _ in parts], dim=1), [own for _, own in parts]
    before = sum(map(len, ids[: dist.get_rank()])) if len(parts) > 1 else 0
    whole = [row.to(column) for row, column in zip(table, columns, strict=True)]
    return whole, [group for own in ids for group in own], len(parts), before


def labels_from_rewards(rewards: Tensor | Sequence[float], graded: bool = False) -> Tensor:
    """1 -> POSITIVE, 0 -> NEGATIVE, nan -> IGNORED; for another reward a ValueError names the sample.

    Graded rewards may be any finite number or nan; for the metrics those above 0.5 are positive.
    """
    if not isinstance(rewards, Tensor) and None in rewards:
        raise ValueError(
            f"reward of sample {list[Any](rewards).index(None)} is None. Use nan for an ungraded response"
        )
    rewards = torch.as_tensor(rewards, dtype=torch.float64).detach().cpu()
    wrong = rewards.isinf() if graded else (rewards != 0) & (rewards != 1) & ~rewards.isnan()
    if bool(wrong.any()):
        sample, known = int(wrong.nonzero()[0, 0]), "REAL's labels are 1 (correct), 0 (incorrect) or nan (ungraded)"
        mend = "use finite rewards" if graded else f"{known}. Threshold the rewards first"
        raise ValueError(f"reward of sample {sample} is {rewards[sample].item():g}: {mend}")
    labels = torch.where(rewards > 0.5, POSITIVE, NEGATIVE)
    return torch.where(rewards.isnan(), IGNORED, labels)


def _listed(group_ids: Tensor | Sequence[int | str]) -> list[int | str]:
    if isinstance(group_ids, Tensor):
        wrong = [f"a tensor of {group_ids.dtype}"] * group_ids.is_floating_point()
    else:  # a missing column is None or a list of None, which would be one group
        ids = [None] if group_ids is None else group_ids
        wrong = [repr(one) for one in ids if not isinstance(one, str | Integral)]
    if wrong:
        raise ValueError(f"group_ids must be integers or strings, got {wrong[0]}")
    return group_ids.tolist() if isinstance(group_ids, Tensor) else list(group_ids)


def _group_index(group_ids: Tensor | Sequence[int | str]) -> Tensor:
    ids = _listed(group_ids)
    positions: dict[int | str, int] = {}
    if isinstance(group_ids, Tensor):
        return group_ids
    return torch.tensor([positions.setdefault(group, len(positions)) for group in ids], dtype=torch.long)
