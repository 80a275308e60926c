"""Updates whose loss is one of a micro-batch's tokens: OpenRLHF's own losses, and those in files of users."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from real_openrlhf.algorithm.formulas import TokenLoss
from real_openrlhf.algorithm.groups import IGNORED, POSITIVE, Groups, TrainingProgress
from real_openrlhf.algorithm.mismatch import token_gaps
from real_openrlhf.algorithm.settings import ObjectiveSettings
from real_openrlhf.algorithm.step_plan import PlannedUpdate
from real_openrlhf.algorithm.token_ratios import token_gradients, token_log_ratios
from real_openrlhf.algorithm.update import Forward, Update


class TokenUpdate(Update):
    """A loss of each micro-batch's tokens, which needs no other rollout's score.

    `loss_fn` has the arguments and results of OpenRLHF's PolicyLoss; `family` and `clip` are for Table 1.
    """

    sums = ("policy_loss", "ppo_clip_ratio", "vllm_kl", "is_filter_ratio")

    def __init__(
        self, loss_fn: Callable[..., tuple], family: str, clip: tuple[float, float], *args: Any, **named: Any
    ) -> None:
        super().__init__(*args, **named)
        self.loss_fn, self.family, self.clip = loss_fn, family, clip

    def policy_loss(self, now: Forward) -> Tensor:
        assert now.advantages is not None
        mask, sampler = now.mask.bool(), now.sampler
        # Select before any arithmetic: what is not the policy's may be nan.
        new, old, advantages = (torch.where(mask, column, 0.0) for column in (now.log_probs, now.old, now.advantages))
        loss, clipped, _, *mismatch = self.loss_fn(
            *(new, old, advantages),
            action_mask=now.mask,
            rollout_log_probs=None if sampler is None else torch.where(mask, sampler, 0.0),
            dp_size=1,
            batch_num_tokens=self.planned.action_tokens,
            global_batch_size=max(self.planned.rollouts_with_tokens, 1),
        )
        self.meter.add(policy_loss=loss.detach())
        tokens = mask.sum()
        for name, mean in zip(self.sums[1:], (clipped, *mismatch), strict=True):
            if mean is not None:  # of no tokens it is nan
                self.means = tuple(dict.fromkeys((*self.means, name)))  # that `loss_fn` gives
                self.meter.add(**{name: torch.where(tokens > 0, mean.detach(), 0.0) * tokens})
        return loss

    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        return token_gradients(self.family, now.log_probs, now.old, now.mask, labels, self.clip)


@dataclass(frozen=True)
class TokenGroup(TrainingProgress):
    """What a token loss may know beside its tokens. Columns of a rollout are (B, 1), so that they meet its tokens."""

    settings: ObjectiveSettings
    positive: Tensor  # (B, 1) labelled correct
    values: Tensor  # (B, 1) rewards
    rate: Tensor  # (B, 1) share of correct responses among the prompt's graded ones
    size: Tensor  # (B, 1) how many responses of the prompt are graded
    old: Tensor  # (B, T) log-probabilities of the old policy
    known_gap: Tensor | None  # (B, T) log pi_old - log pi of vLLM
    known_reference: Tensor | None  # (B, T) log-probabilities of the reference model

    def __getitem__(self, name: str) -> Any:
        """The value of a setting that the loss defines."""
        if name in dir(self) and name not in self.settings.settings:
            raise ValueError(f'group["{name}"] is no setting. Write group.{name}')
        return self.settings[name]

    @property
    def gap(self) -> Tensor:
        if self.known_gap is None:
            raise ValueError("group.gap needs vLLM's log-probabilities. Leave --rollout.mismatch off out")
        return self.known_gap

    @property
    def reference(self) -> Tensor:
        if self.known_reference is None:
            raise ValueError("group.reference needs a reference model. Declare TokenLoss(..., reads_reference=True)")
        return self.known_reference


def rollout_columns(groups: Groups) -> Tensor:
    """(4, K) float32: whether each rollout is correct, its reward, and the rate and size of its group."""
    rate = groups.mean(groups.positive.double(), groups.valid)[groups.index]
    size = groups.size(groups.valid)[groups.index].double()
    return torch.stack([groups.positive.double(), groups.values, rate, size]).float()


class CustomTokenUpdate(Update):
    """Sum of constant weights times log-probabilities; the mean is the one that the file declares."""

    sums = ("policy_loss", "ppo_clip_ratio")
    means = ("ppo_clip_ratio",)

    def __init__(self, settings: ObjectiveSettings, planned: PlannedUpdate, *args: Any, **named: Any) -> None:
        super().__init__(planned, *args, **named)
        assert isinstance(settings.objective, TokenLoss)
        self.settings, self.tokens = settings, settings.objective
        self.columns_of = rollout_columns(Groups.from_batch(planned.batch)).to(self.device)

    def weights_at(self, now: Forward, advantages: Tensor) -> Tensor:
        """(B, T) the loss's weights at these advantages, 0 where the mask is 0."""
        mask = now.mask.bool()
        new, old, advantages = (
            torch.where(mask, column, 0.0) for column in (now.log_probs.detach(), now.old, advantages)
        )
        gap = None if now.sampler is None else -token_gaps(now.old, now.sampler, mask)
        reference = None if now.reference is None else torch.where(mask, now.reference, 0.0)
        positive, *columns = self.columns_of[:, now.positions.to(self.device), None]
        known = positive > 0, *columns, old, gap, reference
        group = TokenGroup(self.settings, *known, **vars(self.planned.training_progress))
        return torch.where(mask, self.tokens.loss(new - old, advantages, mask, group), 0.0)

    def policy_loss(self, now: Forward) -> Tensor:
        assert now.advantages is not None
        mask = now.mask.bool()
        log_probs = torch.where(mask, now.log_probs, 0.0)
        if not len(now.positions):  # a dummy, whose gradient is 0
            return 0.0 * log_probs.sum()
        known = (self.planned.batch.labels[now.positions] != IGNORED).to(self.device)[:, None]
        trained = known & ((now.advantages != 0) | (not self.tokens.two_sides))
        each = -torch.where(trained, self.weights_at(now, now.advantages), 0.0).detach() * log_probs
        if self.tokens.mean == "token-mean":
            loss = each.sum() / self.planned.action_tokens
        else:
            loss = (each.sum(-1) / mask.sum(-1).clamp(min=1)).sum() / max(self.planned.rollouts_with_tokens, 1)
        self.meter.add(policy_loss=loss.detach())
        return loss

    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        """|weight| of each token at an advantage of 1 or -1; also measures how many tokens it leaves out."""
        weights = self.weights_at(now, torch.where(labels == POSITIVE, 1.0, -1.0)[:, None].expand_as(now.old))
        mask = now.mask.bool()
        log_ratio = token_log_ratios(now.log_probs, now.old, mask)
        self.meter.add(ppo_clip_ratio=(mask & self.tokens.clipped(weights, log_ratio)).sum())
        return weights.abs()
