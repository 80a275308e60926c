"""One update of the policy: its loss, micro-batch by micro-batch, and its logged numbers, the same on every rank.

What differs between methods is `policy_loss`: `score_table.py` has it over the scores of whole groups, `token_loss.py`
over the tokens of a micro-batch. Terms of every token (KL, entropy), sums over ranks and logged means are the same.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.distributed as dist
from torch import Tensor

from real_openrlhf.algorithm.meter import TERMS, Meter
from real_openrlhf.algorithm.metrics import ratio_table
from real_openrlhf.algorithm.objective import rollout_scores
from real_openrlhf.algorithm.policy_loss import kl_k1, kl_old
from real_openrlhf.algorithm.step_plan import RankStep, RankWave


class NonFiniteError(RuntimeError):
    """A loss, score or gradient was nan or infinite; the model keeps the weights of the step before."""


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the terms that are added to the method's loss."""

    kl_old: float = 0.0  # KL to the old policy
    kl: float = 0.0  # KL to the reference model
    entropy: float | None = None
    disco_kl: float = 0.0
    disco_kl_delta: float = 1e-4


@dataclass
class Forward:
    """The result of a micro-batch's forward pass, (rollouts, tokens) each. A dummy has no rows and an empty mask."""

    score: str  # the kind of score; empty for a loss of tokens
    rows: Tensor  # the rollouts' rows in the update's table
    mask: Tensor
    log_probs: Tensor  # differentiable unless it was a scoring pass
    old: Tensor
    reference: Tensor | None = None
    sampler: Tensor | None = None
    kl: Tensor | None = None  # KL to the reference model, if the loss has this term
    entropy: Tensor | None = None
    aux_loss: Tensor | None = None  # of a mixture of experts
    advantages: Tensor | None = None  # for a loss of tokens

    @cached_property
    def scores(self) -> Tensor:
        return rollout_scores(self.score, self.log_probs, self.old, self.reference, self.mask, self.sampler)


class Update(ABC):
    """The loss and the numbers of one update."""

    shares: tuple[str, ...] = ()  # the method's own sums over tokens
    hinge: float = 0.0  # coefficient of DisCO's KL constraint

    def __init__(
        self,
        step: RankStep,
        coefficients: Coefficients,
        number: int = 1,
        device: torch.device | str = "cpu",
        group: dist.ProcessGroup | None = None,
        sampled: bool = False,
    ) -> None:
        self.step, self.coefficients, self.number = step, coefficients, number
        self.device, self.group = device, group
        self.meter = Meter(device, sampled=sampled, shares=self.shares)

    @abstractmethod
    def policy_loss(self, now: Forward) -> Tensor:
        """A micro-batch's part of the method's loss."""

    @abstractmethod
    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        """(rollouts, tokens) |W| of each token, for the paper's Table 1."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """The method's own numbers, after the meter is gathered; `policy_loss` is the value that was trained."""

    def exchange(self, wave: RankWave, forwards: list[Forward]) -> None:
        """Bring this wave's scores of all ranks together; the plan asks for it where the loss needs them."""
        raise NotImplementedError

    def columns(self) -> Tensor | None:
        """(4, K) group, label, score and weight of each rollout, where the loss has them."""
        return None

    def loss(self, now: Forward) -> Tensor:
        """A micro-batch's part of the update's loss. The parts of all ranks add up to it. Feeds the meter."""
        terms, coefficients = self.token_terms(now), self.coefficients
        loss = self.policy_loss(now)
        per_token = coefficients.kl_old * terms["kl_old"] + coefficients.kl * terms["kl"]
        if self.hinge:
            per_token = per_token + self.hinge * terms["ppo_kl"]
        if coefficients.entropy:
            per_token = per_token - coefficients.entropy * terms["entropy_loss"]
        self.measure(now, terms)
        return loss + per_token / self.step.action_tokens

    @torch.no_grad()
    def measure(self, now: Forward, terms: dict[str, Tensor]) -> None:
        self.meter.add(**terms)
        if len(now.rows):
            columns, labels = (now.log_probs, now.old, now.mask), self.step.labels[now.rows].to(self.device)
            self.meter.add(ratios=ratio_table(*columns, labels, self.magnitudes(now, labels)))
            self.meter.see(*columns, now.sampler)

    def token_terms(self, now: Forward) -> dict[str, Tensor]:
        """Sums over tokens, for the log and for loss terms beside the method's; 0 for a term that is switched off."""
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

    def numbers(self) -> dict[str, float]:
        """The logged numbers of the whole update, the same on every rank."""
        self.meter.gather(self.group)
        return {**self.meter.token_means(self.step.trained_tokens), **self.metrics(), **self.meter.metrics()}
