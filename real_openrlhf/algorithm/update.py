"""One update of the policy: its loss, micro-batch by micro-batch, and its logged numbers, the same on every rank.

What differs between methods is `policy_loss`: `GroupUpdate` has it over the scores of whole groups, those of
`token_update` have it over the tokens of a micro-batch. Terms of every token (KL, entropy), sums over ranks and logged
means are the same.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD
from real_openrlhf.algorithm.meter import MetricAccumulator, fetch, sum_over_ranks
from real_openrlhf.algorithm.metrics import COUNT, TERMS, TIS_METRICS, group_metrics
from real_openrlhf.algorithm.mismatch import token_gaps
from real_openrlhf.algorithm.objective import WeighedLoss, rollout_scores
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, kl_old
from real_openrlhf.algorithm.schedule import Wave
from real_openrlhf.algorithm.settings import ObjectiveSettings
from real_openrlhf.algorithm.step_plan import PlannedUpdate
from real_openrlhf.algorithm.token_ratios import ratio_table, rollout_gradients, token_log_ratios
from real_openrlhf.base.errors import NonFiniteError


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the terms that are added to the method's loss."""

    kl_old: float = 0.0  # KL to the old policy
    kl: float = 0.0  # KL to the reference model
    entropy: float | None = None
    tis_cap: float | None = None  # the largest factor of a rollout for the gap to its sampler; None: no factors


@dataclass
class Forward:
    """The result of a micro-batch's forward pass, (rollouts, tokens) each. A dummy has the columns of one rollout, but
    no positions and an empty mask."""

    score: str  # the kind of score; empty for a loss of tokens
    positions: Tensor  # of the rollouts in the batch
    mask: Tensor
    log_probs: Tensor  # differentiable unless it was a scoring pass
    old: Tensor  # of the old policy, or of vLLM in its place where nothing reads the old policy's
    reference: Tensor | None = None
    sampler: Tensor | None = None
    kl: Tensor | None = None  # KL to the reference model, if the loss has this term
    entropy: Tensor | None = None
    aux_loss: Tensor | None = None  # of a mixture of experts
    advantages: Tensor | None = None  # for a loss of tokens
    unmoved: Tensor | None = None  # of the policy before it moved, if these are not `old`

    @cached_property
    def scores(self) -> Tensor:
        return rollout_scores(self.score, self.log_probs, self.old, self.reference, self.mask, self.sampler)


class Update(ABC):
    """The loss and the numbers of one update."""

    sums: tuple[str, ...] = ()  # the method's own, over tokens
    means: tuple[str, ...] = ()  # those of which it logs the mean over tokens

    def __init__(
        self,
        planned: PlannedUpdate,
        coefficients: Coefficients,
        optimizer_step: int,
        device: torch.device | str,
        ranks: dist.ProcessGroup | None,
        sampled: bool,
    ) -> None:
        self.planned, self.coefficients, self.optimizer_step = planned, coefficients, optimizer_step
        self.device, self.ranks = device, ranks
        self.meter = MetricAccumulator(device, sampled=sampled, sums=self.sums)

    @abstractmethod
    def policy_loss(self, now: Forward) -> Tensor:
        """A micro-batch's part of the method's loss."""

    @abstractmethod
    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        """(rollouts, tokens) |W| of each token, for the paper's Table 1."""

    def own_metrics(self) -> dict[str, float]:
        """The method's own numbers, after the meter is gathered; `policy_loss` is the value that was trained."""
        means = self.meter.token_means(self.planned.trained_tokens, self.means)
        return {"policy_loss": float(self.meter.sums["policy_loss"]), **means}

    def exchange(self, wave: Wave, forwards: list[Forward]) -> None:
        """Bring this wave's scores of all ranks together; the plan asks for it where the loss needs them."""
        raise NotImplementedError

    def columns(self) -> Tensor | None:
        """(3, K) group, score and weight of each rollout, where the loss has them."""
        return None

    def loss(self, now: Forward) -> Tensor:
        """A micro-batch's part of the update's loss. The parts of all ranks add up to it. Feeds the meter."""
        terms, coefficients = self.token_terms(now), self.coefficients
        loss = self.policy_loss(now)
        per_token = coefficients.kl_old * terms["kl_old"] + coefficients.kl * terms["kl"]
        if coefficients.entropy:
            per_token = per_token - coefficients.entropy * terms["entropy_loss"]
        self.record(now, terms)
        return loss + per_token / self.planned.action_tokens

    @torch.no_grad()
    def record(self, now: Forward, terms: dict[str, Tensor]) -> None:
        self.meter.add(**terms)
        if len(now.positions):
            columns, labels = (now.log_probs, now.old, now.mask), self.planned.batch.labels[now.positions]
            labels = labels.to(self.device)
            self.meter.add(ratios=ratio_table(*columns, labels, self.magnitudes(now, labels)))
            self.meter.see(*columns, now.old if now.unmoved is None else now.unmoved, now.sampler)

    def token_terms(self, now: Forward) -> dict[str, Tensor]:
        """Sums over tokens, for the log and for loss terms beside the method's; 0 for a term that is switched off."""
        terms = dict.fromkeys(TERMS, torch.zeros((), dtype=torch.float64, device=self.device))
        terms["ppo_kl"] = -token_log_ratios(now.log_probs, now.old, now.mask).sum()
        if self.coefficients.kl_old:
            terms["kl_old"] = kl_old(now.log_probs, now.old, now.mask)
        mask = now.mask.bool()
        if now.kl is not None and now.reference is not None:
            terms["kl"] = torch.where(mask, now.kl, 0.0).sum()
            terms["logprobs_diff"] = torch.where(mask, now.log_probs - now.reference, 0.0).sum()
        if now.entropy is not None:
            terms["entropy_loss"] = torch.where(mask, now.entropy, 0.0).sum()
        return terms

    def logged(self) -> dict[str, float]:
        """The logged numbers of the whole update, the same on every rank."""
        self.meter.gather(self.ranks)
        return {**self.meter.token_means(self.planned.trained_tokens), **self.own_metrics(), **self.meter.metrics()}


class GroupUpdate(Update):
    """Scores and weights of an update's rollouts by position in the batch, filled wave by wave, or at once if scores
    are known before any forward."""

    sums = ("factors", "clipped_factors", "rollouts")

    def __init__(self, settings: ObjectiveSettings, planned: PlannedUpdate, *args: Any, **named: Any) -> None:
        super().__init__(planned, *args, **named)
        self.settings, self.rollouts = settings, torch.tensor(planned.rollouts)
        self.denominator = planned.denominator(settings)
        self.scores = torch.zeros(len(planned.batch), dtype=torch.float64)
        self.weights = torch.zeros_like(self.scores)
        if planned.scores_known:
            self.scores += KNOWN_AT_OLD[settings.score]
            self.weights[self.rollouts] = self.weighed().weights

    def weighed(self) -> WeighedLoss:
        """Of the whole update, at the scores that are known by now."""
        return self.planned.weigh(self.settings, self.scores, self.rollouts)

    def exchange(self, wave: Wave, forwards: list[Forward]) -> None:
        """Share the scores of all ranks in one all-reduce and weigh the wave's groups.

        A score of one rank that is not finite reaches all ranks, so they stop together.
        """
        trained, groups = torch.tensor(wave.positions, dtype=torch.long), self.planned.batch.groups
        own = torch.cat([now.scores[: len(now.positions)] for now in forwards]).detach().double()
        places = torch.searchsorted(trained, torch.cat([now.positions for now in forwards]))
        table = own.new_zeros(len(trained))
        table[places.to(own.device)] = own
        scores = fetch(sum_over_ranks(table, self.ranks))
        if not bool(scores.isfinite().all()):
            prompts = groups[trained][~scores.isfinite()].unique().tolist()
            raise NonFiniteError.of(f"a score of the batch's prompts {prompts[:8]}", self.optimizer_step)
        self.scores[trained] = scores
        whole = self.rollouts[torch.isin(groups[self.rollouts], groups[trained])]
        self.weights[whole] = self.planned.weigh(self.settings, self.scores, whole).weights

    def policy_loss(self, now: Forward) -> Tensor:
        # a dummy has one rollout, of weight 0
        weights = self.weights[now.positions] if len(now.positions) else self.weights.new_zeros(1)
        return RealPolicyLoss()(now.scores, weights.to(self.device) * self.factors(now))

    def factors(self, now: Forward) -> Tensor:
        """(B,) importance ratio of each whole response, old policy to sampler, at most the cap."""
        if (clip := self.coefficients.tis_cap) is None or now.sampler is None:
            return torch.ones(len(now.mask), dtype=torch.float64, device=self.device)
        return (-token_gaps(now.old, now.sampler, now.mask).double().sum(-1)).clamp(max=math.log(clip)).exp()

    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        """Those of its rollouts' weights; also measures how far scores have drifted since these were computed."""
        used, weights = torch.stack([self.scores[now.positions], self.weights[now.positions]]).to(self.device)
        self.meter.raise_to(score_drift=(now.scores.double() - used).abs().max())
        factors = self.factors(now)
        if (clip := self.coefficients.tis_cap) is not None:
            capped = (factors > clip * (1 - 1e-9)).sum()
            self.meter.add(factors=factors.sum(), clipped_factors=capped, rollouts=torch.tensor(len(factors)))
        columns = (now.log_probs, now.old, now.mask)
        return rollout_gradients(self.settings.score, *columns, weights * factors * self.denominator)

    @property
    def trained(self) -> Tensor:
        """(K,) which of its rollouts a wave trains; the others have weight 0 at any score."""
        return torch.isin(self.rollouts, torch.tensor(self.planned.trained, dtype=torch.long))

    def columns(self) -> Tensor:
        """(3, K) group, score (nan: not trained), and weight in the loss of its own group."""
        groups, scores = self.planned.batch.groups[self.rollouts], self.scores[self.rollouts]
        weights = self.weights[self.rollouts] * self.denominator
        return torch.stack([groups, scores.masked_fill(~self.trained, torch.nan), weights])

    def own_metrics(self) -> dict[str, float]:
        """The metrics of the full table."""
        weighed, drift = self.weighed(), float(self.meter.maxima["score_drift"])
        table = self.scores[self.rollouts], self.planned.batch.select(self.rollouts)
        metrics, counts = group_metrics(*table, weighed, self.settings, trained=self.trained, score_drift=drift)
        if self.coefficients.tis_cap is not None:
            factors, capped, rollouts = (float(self.meter.sums[name]) for name in self.sums)
            metrics |= dict(zip(TIS_METRICS, (factors / max(rollouts, 1), capped / max(rollouts, 1)), strict=True))
            counts[COUNT + "rollouts"] = rollouts
        return {"policy_loss": float(weighed.loss), **metrics, **counts}
