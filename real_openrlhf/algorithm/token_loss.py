"""Losses of constant token weights, ours and those of files: micro-batches and ranks add up to the same gradient."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from real_openrlhf.algorithm.formulas import TokenLoss
from real_openrlhf.algorithm.groups import IGNORED, POSITIVE, Groups, Moment
from real_openrlhf.algorithm.metrics import token_gaps
from real_openrlhf.algorithm.objective import ObjectiveSettings
from real_openrlhf.algorithm.step_plan import RankStep
from real_openrlhf.algorithm.update import Forward, Update


@dataclass(frozen=True)
class TokenGroup:
    """What a token loss may know beside its tokens. Columns of a rollout are (B, 1), so that they meet its tokens."""

    settings: ObjectiveSettings
    moment: Moment
    positive: Tensor  # (B, 1) labelled right
    values: Tensor  # (B, 1) rewards
    rate: Tensor  # (B, 1) share of right answers among the prompt's answers with a verdict
    known_gap: Tensor | None  # (B, T) log pi_old - log pi of vLLM

    def __getitem__(self, name: str) -> Any:
        """The value of a setting that the loss defines."""
        return self.settings[name]

    @property
    def gap(self) -> Tensor:
        if self.known_gap is None:
            raise ValueError("group.gap needs vLLM's log-probabilities. Leave --rollout.mismatch off out")
        return self.known_gap

    @property
    def step(self) -> int:
        return self.moment.step

    @property
    def progress(self) -> float:
        return self.moment.progress


class WeightedTokens(Update):
    """Sum of constant weights times log-probabilities; the mean is the one that the file declares."""

    shares = ("policy_loss", "ppo_clip_ratio")

    def __init__(self, settings: ObjectiveSettings, step: RankStep, *args: Any, **named: Any) -> None:
        super().__init__(step, *args, **named)
        assert isinstance(settings.objective, TokenLoss)
        self.settings, self.tokens = settings, settings.objective
        groups = Groups.of(step.table)
        rate = groups.mean(groups.positive.double(), groups.valid)[groups.index]
        self.columns_of = torch.stack([groups.positive.double(), groups.values, rate]).float().to(self.device)

    def found(self, now: Forward, advantages: Tensor) -> Tensor:
        """(B, T) the loss's weights at these advantages, 0 where the mask is 0."""
        mask = now.mask.bool()
        new, old, advantages = (torch.where(mask, one, 0.0) for one in (now.log_probs.detach(), now.old, advantages))
        gap = None if now.sampler is None else -token_gaps(now.old, now.sampler, mask)
        positive, values, rate = self.columns_of[:, now.rows.to(self.device), None]
        group = TokenGroup(self.settings, self.step.moment, positive > 0, values, rate, gap)
        return torch.where(mask, self.tokens.loss(new - old, advantages, mask, group), 0.0)

    def policy_loss(self, now: Forward) -> Tensor:
        assert now.advantages is not None
        mask = now.mask.bool()
        log_probs = torch.where(mask, now.log_probs, 0.0)
        if not len(now.rows):  # a dummy, whose gradient is 0
            return 0.0 * log_probs.sum()
        known = (self.step.table.labels[now.rows] != IGNORED).to(self.device)[:, None]
        trained = known & ((now.advantages != 0) | (not self.tokens.two_sides))
        each = -torch.where(trained, self.found(now, now.advantages), 0.0).detach() * log_probs
        if self.tokens.mean == "token-mean":
            loss = each.sum() / self.step.action_tokens
        else:
            loss = (each.sum(-1) / mask.sum(-1).clamp(min=1)).sum() / max(self.step.rollouts_with_tokens, 1)
        self.meter.add(policy_loss=loss.detach())
        return loss

    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        """|weight| of each token at an advantage of 1 or -1; also measures how many tokens it leaves out."""
        weights = self.found(now, torch.where(labels == POSITIVE, 1.0, -1.0)[:, None].expand_as(now.old))
        mask = now.mask.bool()
        log_ratio = torch.where(mask, now.log_probs, 0.0) - torch.where(mask, now.old, 0.0)
        self.meter.add(ppo_clip_ratio=(mask & self.tokens.clipped(weights, log_ratio)).sum())
        return weights.abs()

    def metrics(self) -> dict[str, float]:
        means = self.meter.token_means(self.step.trained_tokens, self.shares[1:])
        return {"policy_loss": float(self.meter.sums["policy_loss"]), **means}
