"""A loss of tokens from the user's file: constant weights, so micro-batches and ranks add up to the same gradient."""

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
    gap: Tensor  # (B, T) log pi_old - log pi of vLLM; 0 if vLLM's are not known

    def __getitem__(self, name: str) -> Any:
        """The value of a setting that the loss defines."""
        return self.settings[name]

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
        self.settings, self.mean = settings, settings.objective.mean
        values = (step.labels == POSITIVE).double() if step.values is None else step.values
        table = Groups.of(step.labels, step.groups, values, step.lengths, step.moment)
        rate = table.mean(table.positive.double(), table.valid)[table.index]
        self.columns_of = torch.stack([table.positive.double(), table.values, rate]).float().to(self.device)

    def weights(self, now: Forward) -> Tensor:
        """(B, T) the file's weights; 0 where the mask is 0, without a verdict, and where the advantage must teach."""
        assert now.advantages is not None
        known = (self.step.labels[now.rows] != IGNORED).to(self.device)
        mask = now.mask.bool()
        new, old, advantages = (torch.where(mask, one, 0.0) for one in (now.log_probs, now.old, now.advantages))
        gap = torch.zeros_like(old) if now.sampler is None else -token_gaps(now.old, now.sampler, mask)
        positive, values, rate = self.columns_of[:, now.rows.to(self.device), None]
        group = TokenGroup(self.settings, self.step.moment, positive > 0, values, rate, gap)
        with torch.no_grad():
            found = self.settings.objective.loss((new - old).detach(), advantages, mask, group)
        teaches = (advantages != 0) | (not self.settings.objective.two_sides)
        return torch.where(mask & known[:, None] & teaches, found, 0.0)

    def policy_loss(self, now: Forward) -> Tensor:
        mask = now.mask.bool()
        log_probs = torch.where(mask, now.log_probs, 0.0)
        if not len(now.rows):  # a dummy, whose gradient is 0
            return 0.0 * log_probs.sum()
        weights = self.weights(now)
        each = -weights * log_probs
        tokens = mask.sum(-1)
        if self.mean == "token-mean":
            loss = each.sum() / self.step.action_tokens
        else:
            loss = (each.sum(-1) / tokens.clamp(min=1)).sum() / max(self.step.rollouts_with_tokens, 1)
        gone = mask & (weights == 0) & (now.advantages != 0)
        self.meter.add(policy_loss=loss.detach(), ppo_clip_ratio=gone.sum())
        return loss

    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        """|weight| of each token, its advantage included."""
        return self.weights(now).abs()

    def metrics(self) -> dict[str, float]:
        means = self.meter.token_means(self.step.trained_tokens, self.shares[1:])
        return {"policy_loss": float(self.meter.sums["policy_loss"]), **means}
