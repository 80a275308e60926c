"""Try an objective on a small table of scores before a run trains with it."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE, Groups
from real_openrlhf.algorithm.objective import ObjectiveSettings, make_groups, rollout_scores
from real_openrlhf.base.user_files import raised

# One group of each kind: mixed, right only, wrong only, ignored only, and one rollout of either side.
KINDS = (
    "a group with both sides",
    "a group of right answers alone",
    "a group of wrong answers alone",
    "a group that is ignored as a whole",
    "a group of one right and one wrong answer",
)
REMEDY = (
    "groups.sum, groups.mean, groups.std and groups.zscores are 0 on an empty side, groups.logsumexp and "
    "groups.logmeanexp are -inf: replace what they give before you go on, as with "
    "`.where(groups.size(groups.valid) > 0, 0.0)` for a number a group and `.where(groups.valid, 0.0)` a rollout"
)
LABELS = (POSITIVE, NEGATIVE, IGNORED, UNPARSABLE, POSITIVE, POSITIVE, NEGATIVE, NEGATIVE, IGNORED, POSITIVE, NEGATIVE)
GROUPS = (0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 4)
REWARDS = (1.0, 0.25, 0.0, 0.0, 0.75, 1.0, 0.5, 0.0, 0.0, 1.0, 0.0)  # for objectives of graded rewards
LENGTHS = (3, 5, 2, 4, 1, 6, 2, 2, 3, 7, 1)
DRIFT = (0.2, -0.1, 0.3, 0.1, -0.2, 0.25, 0.15, -0.3, 0.05, -0.15, 0.35)


def problem(settings: ObjectiveSettings) -> str | None:
    """The defect of the objective's loss, in one line with the fix; None if it can train."""
    labels, groups = torch.tensor(LABELS), torch.tensor(GROUPS)
    values = torch.tensor(REWARDS) if settings.objective.graded else None
    # With uniform groups kept, the formula meets empty sides, as it does in every run for the metrics of each side.
    table = make_groups(replace(settings, uniform_groups="keep"), labels, groups, values, torch.tensor(LENGTHS))
    drift = torch.tensor(DRIFT, dtype=torch.float64)
    moves = False
    for moved in (0.0, 1.0):  # in the first update after a rollout all scores are equal
        scores = (_on_policy(settings.score) + moved * drift).requires_grad_()
        if found := _problem(settings, scores, table):
            return found
        moves |= bool(_slopes(settings.objective.loss(scores, table, settings), scores).any())
    if not moves:
        return "its gradient is 0 everywhere, so nothing would be trained. Let the loss depend on the scores"
    return None


def _on_policy(kind: str) -> Tensor:
    """The scores where nothing has moved: policy, old policy, reference and sampler agree on every token."""
    action_mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    log_probs = torch.full(action_mask.shape, -1.0, dtype=torch.float64)
    return rollout_scores(kind, log_probs, log_probs, log_probs, action_mask, log_probs)


def _slopes(loss: Tensor, scores: Tensor) -> Tensor:
    """(groups, K) the gradient of each group's loss."""
    return torch.stack([torch.autograd.grad(one, scores, retain_graph=True)[0] for one in loss])


def _problem(settings: ObjectiveSettings, scores: Tensor, table: Groups) -> str | None:
    try:
        loss = settings.objective.loss(scores, table, settings)
    except Exception as error:
        return f"on a small table it raises {raised(error)}. Change it so that it takes any groups"
    if not isinstance(loss, Tensor) or loss.shape != (table.count,):
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        return f"it returns {got}, not one loss for each group, ({table.count},). Use groups.sum or groups.mean"
    if not loss.isfinite().all():
        kinds = ", ".join(kind for kind, one in zip(KINDS, loss.tolist(), strict=True) if not math.isfinite(one))
        return f"it is not finite for {kinds}. {REMEDY}"
    if not loss.requires_grad:
        return "it has no gradient. Use torch's differentiable functions of the scores, without detach or no_grad"
    slopes = _slopes(loss, scores)
    if not slopes.isfinite().all():
        wrong = {GROUPS[place] for place in (~slopes.isfinite().all(dim=0)).nonzero().flatten().tolist()}
        kinds = "equal scores" if wrong >= {0, 1, 2, 4} else ", ".join(KINDS[group] for group in sorted(wrong))
        return f"its gradient is not finite for {kinds}. {REMEDY}"
    if slopes[:, ~table.valid].any():
        return "it gives weight to ignored rollouts. Use groups.positive, groups.negative or groups.valid to choose"
    own = table.index == torch.arange(table.count)[:, None]
    if slopes[~own].any():
        return "the loss of a group reads other groups' scores. Use the sums that `groups` makes of each group"
    return None
