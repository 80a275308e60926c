"""An update's table of scores and weights, identical on every rank: exchange of scores, loss, logged numbers."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD
from real_openrlhf.algorithm.meter import fetch, sum_over_ranks
from real_openrlhf.algorithm.metrics import group_metrics, rollout_gradients
from real_openrlhf.algorithm.objective import ObjectiveSettings
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, kl_hinge_coef, kl_k1
from real_openrlhf.algorithm.step_plan import RankStep, RankWave
from real_openrlhf.algorithm.update import Forward, NonFiniteError, Update


class StepTable(Update):
    """Scores and weights of an update, filled wave by wave, or at once if scores are known before any forward."""

    def __init__(self, settings: ObjectiveSettings, step: RankStep, *args: Any, **named: Any) -> None:
        super().__init__(step, *args, **named)
        self.settings = settings
        self.denominator = max(step.num_rollouts if settings.mean_over_rollouts else step.num_groups, 1)  # the loss's
        self.scores = torch.zeros(len(step.labels), dtype=torch.float64)
        self.weights = torch.zeros_like(self.scores)
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
                f"{self.number}: stopped before the weights changed. Resume from the last checkpoint with a lower "
                "--actor.adam.lr"
            )
        self.scores[rows] = scores
        whole = torch.isin(self.step.groups, self.step.groups[rows]).nonzero().squeeze(-1)
        self.weights[whole] = self.step.weigh(self.settings, self.scores, whole).weights

    def policy_loss(self, now: Forward) -> Tensor:
        # a dummy has one rollout, of weight 0
        weights = self.weights[now.rows] if len(now.rows) else self.weights.new_zeros(1)
        return RealPolicyLoss()(now.scores, weights.to(self.device))

    def magnitudes(self, now: Forward, labels: Tensor) -> Tensor:
        """Those of its rollouts' weights; also measures how far scores have drifted since these were computed."""
        used, weights = torch.stack([self.scores[now.rows], self.weights[now.rows]]).to(self.device)
        self.meter.raise_to(score_drift=(now.scores.double() - used).abs().max())
        columns = (now.log_probs, now.old, now.mask)
        return rollout_gradients(self.settings.score, *columns, weights * self.denominator)

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
