"""Compute the weight of each rollout: an objective's formula, applied to a step's table of scores.

Scores `(K,)`, one for each row of a `RolloutBatch`, are the only thing that the formulas know about the model, so a
group may be torn over micro-batches and ranks: exchange the scores, weigh them here, and train on
`sum_k weight_k * score_k`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from real_openrlhf.algorithm.formulas import SUM, TOKEN_SCORES, against_sampler
from real_openrlhf.algorithm.groups import NEGATIVE, START, UNPARSABLE, Groups, RolloutBatch, TrainingProgress
from real_openrlhf.algorithm.settings import ObjectiveSettings


def rollout_scores(
    kind: str,
    log_probs: Tensor,
    old_log_probs: Tensor,
    ref_log_probs: Tensor | None,
    action_mask: Tensor,
    rollout_log_probs: Tensor | None = None,
) -> Tensor:
    """(B, T) log-probabilities -> (B,) scores, differentiable in `log_probs` alone; 0 for a rollout without tokens."""
    if ref_log_probs is None and kind.endswith("log_ratio_ref"):
        raise ValueError(f"score kind {kind} needs ref_log_probs, the reference policy's log-probabilities")
    if rollout_log_probs is None and against_sampler(kind):
        raise ValueError(f"score kind {kind} needs rollout_log_probs, the sampler's log-probabilities of its tokens")
    mask = action_mask.bool()

    def visible(column: Tensor | None) -> Tensor:
        # Select before any arithmetic: 0 * nan is nan, also in a gradient. A missing input reads as nan.
        return torch.where(mask, torch.full_like(old_log_probs, torch.nan) if column is None else column, 0.0)

    of_token = TOKEN_SCORES[kind.removeprefix(SUM)]
    anchors = (visible(column).detach() for column in (old_log_probs, ref_log_probs, rollout_log_probs))
    per_token = of_token(visible(log_probs), *anchors)
    total = torch.where(mask, per_token, 0.0).sum(-1)
    return total if kind.startswith(SUM) else total / mask.sum(-1).clamp(min=1)


@dataclass(frozen=True)
class WeighedLoss:
    """The loss of a table of scores and its gradient in them: all that a backward pass needs to know of the groups."""

    loss: Tensor  # (): sum of the group losses / denominator
    weights: Tensor  # (K,): d loss / d scores
    denominator: int  # prompt groups of the optimizer step, or its valid rollouts for bce with reduction mean

    @property
    def rollout_weights(self) -> Tensor:
        """(K,): d (the rollout's own group loss) / d score, the paper's signed W; |W| < 1/tau for REAL."""
        return self.weights * self.denominator


def make_groups(
    settings: ObjectiveSettings, table: RolloutBatch, training_progress: TrainingProgress = START
) -> Groups:
    """The groups for the objective: UNPARSABLE made NEGATIVE unless it has levels, uniform groups ignored if dropped.

    Without `values` a positive has reward 1 and other rollouts 0; an objective of graded rewards then raises. Rewards
    are rounded to float32, as OpenRLHF keeps them, so a group of 0.1 + 0.2 and 0.3 is uniform.
    """
    objective = settings.objective
    if objective.of_tokens:
        raise ValueError(f"{objective.label or settings.name} is a loss of tokens and has no scores: train it here")
    if objective.graded and table.values is None:
        raise ValueError(f"{objective.label or settings.name} is an objective of graded rewards and got none")
    if not objective.levels:
        table = replace(table, labels=table.labels.masked_fill(table.labels == UNPARSABLE, NEGATIVE))
    groups = Groups.from_batch(table, training_progress)
    if settings.uniform_groups == "keep" or not objective.two_sides:
        return groups
    return groups.ignoring(groups.uniform(groups.values if objective.graded else groups.labels))


def score_weights(
    settings: ObjectiveSettings,
    scores: Tensor,
    table: RolloutBatch,
    denominator: int | None = None,
    training_progress: TrainingProgress = START,
) -> WeighedLoss:
    """The objective's loss on the table, and d loss / d scores by autograd.

    `denominator`: of the whole optimizer step, whose uniform, dropped and fully ignored groups count too, if the table
    is a part of it (whole groups inside a micro-batch). None takes that of the table.
    """
    groups = make_groups(settings, table, training_progress)
    if denominator is None:
        denominator = settings.denominator(groups.count, int(groups.valid.sum()))
    leaf = scores.detach().clone().requires_grad_()
    with torch.enable_grad():
        losses = settings.objective.loss(leaf.masked_fill(~groups.valid, 0.0), groups, settings)
        if losses.shape != (groups.count,):
            raise ValueError(
                f"the objective's loss has shape {tuple(losses.shape)}, not ({groups.count},): one per group"
            )
        loss = losses.sum() / denominator
        (weights,) = torch.autograd.grad(loss, leaf)
    return WeighedLoss(loss.detach(), weights, denominator)
