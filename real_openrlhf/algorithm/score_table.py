"""An update's table of scores and weights, identical on every rank: exchange of scores, loss, logged numbers."""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD
from real_openrlhf.algorithm.meter import TERMS, Meter, fetch, sum_over_ranks
from real_openrlhf.algorithm.metrics import group_metrics, ratio_table, rollout_gradients
from real_openrlhf.algorithm.objective import ObjectiveSettings, rollout_scores
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, kl_hinge_coef, kl_k1, kl_old
from real_openrlhf.algorithm.step_plan import RankStep, RankWave


class NonFiniteError(RuntimeError):
    """A loss, score or gradient was nan or infinite; the model keeps the weights of the step before."""


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the terms that are added to the paper's loss."""

    kl_old: float = 0.0  # KL to the old policy
    kl: float = 0.0  # KL to the reference model
    entropy: float | None = None
    disco_kl: float = 0.0
    disco_kl_delta: float = 1e-4


@dataclass
class Forward:
    """The result of a micro-batch's forward pass, (rollouts, tokens) each. A dummy has no rows and an empty mask."""

    score: str  # the kind of score
    rows: Tensor  # the rollouts' rows in the update's table
    mask: Tensor
    log_probs: Tensor  # differentiable unless it was a scoring pass
    old: Tensor
    reference: Tensor | None = None
    sampler: Tensor | None = None
    kl: Tensor | None = None  # KL to the reference model, if the loss has this term
    entropy: Tensor | None = None
    aux_loss: Tensor | None = None  # of a mixture of experts

    @cached_property
    def scores(self) -> Tensor:
        return rollout_scores(self.score, self.log_probs, self.old, self.reference, self.mask, self.sampler)


class StepTable:
    """Scores and weights of an update, filled wave by wave, or at once if scores are known before any forward."""

    def __init__(
        self,
        settings: ObjectiveSettings,
        step: RankStep,
        coefficients: Coefficients,
        update: int = 1,
        device: torch.device | str = "cpu",
        group: dist.ProcessGroup | None = None,
        sampled: bool = False,
    ) -> None:
        self.settings, self.step, self.coefficients, self.update = settings, step, coefficients, update
        self.device, self.group = device, group
        self.denominator = max(step.num_rollouts if settings.mean_over_rollouts else step.num_groups, 1)  # the loss's
        self.scores = torch.zeros(len(step.labels), dtype=torch.float64)
        self.weights = torch.zeros_like(self.scores)
        self.hinge = 0.0  # coefficient of DisCO's KL constraint
        self.meter = Meter(device, scored=True, sampled=sampled)
        if step.scores_known:
            self.scores += KNOWN_AT_OLD[settings.score]
            self.weights = step.weigh(settings, self.scores, torch.arange(len(self.scores))).weights

    def exchange(self, wave: RankWave, forwards: list[Forward]) -> None:
        """One all-reduce: each rank brings its rollouts' scores and, for DisCO's constraint, its part of the KL."""
        own = torch.cat([one.scores[: len(one.rows)] for one in forwards])
        places = torch.searchsorted(wave.rows, torch.cat([one.rows for one in forwards]))
        kl = own.new_zeros(())
        if self.step.step_wide:
            kl = sum((kl_k1(one.log_probs, one.old, one.mask, self.step.action_tokens) for one in forwards), kl)
        *scores, kl = fetch(shared_scores(own, places, len(wave.rows), kl, self.group)).split([len(wave.rows), 1])
        self.put(wave.rows, *scores)
        if self.step.step_wide:
            self.hinge = kl_hinge_coef(float(kl), self.coefficients.disco_kl, self.coefficients.disco_kl_delta)

    def put(self, rows: Tensor, scores: Tensor) -> None:
        """Store a wave's scores and weigh its groups; raise on every rank if a score is not finite."""
        if not bool(scores.isfinite().all()):
            prompts = self.step.groups[rows][~scores.isfinite()].unique().tolist()
            raise NonFiniteError(
                f"the scores of rollouts of the batch's prompts {prompts[:8]} are not finite in optimizer step "
                f"{self.update}: stopped before the weights changed. Resume from the last checkpoint with a lower "
                "--actor.adam.lr"
            )
        self.scores[rows] = scores
        whole = torch.isin(self.step.groups, self.step.groups[rows]).nonzero().squeeze(-1)
        self.weights[whole] = self.step.weigh(self.settings, self.scores, whole).weights

    def loss(self, now: Forward) -> Tensor:
        """A micro-batch's part of the update's loss. The parts of all ranks add up to it. Feeds the meter."""
        # a dummy has one rollout, of weight 0
        weights = self.weights[now.rows] if len(now.rows) else self.weights.new_zeros(1)
        terms, coefficients = self.token_terms(now), self.coefficients
        loss = RealPolicyLoss()(now.scores, weights.to(self.device))
        per_token = coefficients.kl_old * terms["kl_old"] + coefficients.kl * terms["kl"]
        if self.hinge:
            per_token = per_token + self.hinge * terms["ppo_kl"]
        if coefficients.entropy:
            per_token = per_token - coefficients.entropy * terms["entropy_loss"]
        self.measure(now, terms)
        return loss + per_token / self.step.action_tokens

    def token_terms(self, now: Forward) -> dict[str, Tensor]:
        """Sums over tokens, for the log and for loss terms beside the scores; 0 for a term that is switched off."""
        terms = dict.fromkeys(TERMS, torch.zeros((), dtype=torch.float64, device=self.device))
        terms["ppo_kl"] = kl_k1(now.log_probs, now.old, now.mask, 1)
        if self.coefficients.kl_old:
            terms["kl_old"] = kl_old(now.log_probs, now.old, now.mask, 1)
        mask = now.mask.bool()
        if now.kl is not None and now.reference is not None:
            terms["kl"] = torch.where(mask, now.kl, 0.0).sum()
            terms["logprobs_diff"] = torch.where(mask, now.log_probs - now.reference, 0.0).sum()
        if now.entropy is not None:
            terms["entropy_loss"] = torch.where(mask, now.entropy, 0.0).sum()
        return terms

    @torch.no_grad()
    def measure(self, now: Forward, terms: dict[str, Tensor]) -> None:
        """Feed the meter: loss terms, the paper's Table 1, and the drift of scores since the weights were computed."""
        self.meter.add(**terms)
        if not len(now.rows):
            return
        columns = (now.log_probs, now.old, now.mask)
        used, weights = torch.stack([self.scores[now.rows], self.weights[now.rows]]).to(self.device)
        gradients = rollout_gradients(self.settings.score, *columns, weights * self.denominator)
        self.meter.add(ratios=ratio_table(*columns, self.step.labels[now.rows].to(self.device), gradients))
        self.meter.raise_to(score_drift=(now.scores.double() - used).abs().max())
        self.meter.see(*columns, now.sampler)

    @property
    def trained(self) -> Tensor:
        """(K,) whether a wave trains the rollout; the others have weight 0 at any score."""
        trained = torch.zeros_like(self.step.labels, dtype=torch.bool)
        for wave in self.step.waves:
            trained[wave.rows] = True
        return trained

    def columns(self) -> Tensor:
        """(4, K) group, label, score (nan: not trained), and weight in the loss of its own group."""
        scores = self.scores.masked_fill(~self.trained, torch.nan)
        return torch.stack([self.step.groups, self.step.labels, scores, self.weights * self.denominator])

    def numbers(self) -> dict[str, float]:
        """The logged numbers of the whole update, the same on every rank."""
        self.meter.gather(self.group)
        return {**self.meter.token_means(self.step.trained_tokens), **self.metrics(), **self.meter.metrics()}

    def metrics(self) -> dict[str, float]:
        """The metrics of the full table."""
        weighed = self.step.weigh(self.settings, self.scores, torch.arange(len(self.scores)))
        columns = (self.scores, self.step.labels, self.step.groups, weighed, self.settings)
        drift = float(self.meter.maxima["score_drift"])
        metrics = group_metrics(*columns, truncated=self.step.truncated, trained=self.trained, score_drift=drift)
        return {"policy_loss": float(weighed.loss), **metrics}


def shared_scores(
    scores: Tensor, places: Tensor, count: int, total: Tensor, group: dist.ProcessGroup | None = None
) -> Tensor:
    """(count + 1,) scores of all ranks in float64, then the sum of `total`: one collective, equal on every rank.

    Each rank puts its own scores at `places`; two ranks never share a place. A nan or infinite score of one rank
    reaches all ranks, so they stop together. Without torch.distributed the result is the local table.
    """
    table = torch.zeros(count + 1, dtype=torch.float64, device=scores.device)
    table[places.to(scores.device)] = scores.detach().double()
    table[-1] = total.detach()
    return sum_over_ranks(table, group)
