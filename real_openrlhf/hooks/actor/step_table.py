"""The table of an optimizer step: each rollout's score and weight, on the host and the same on every rank."""

import torch
from torch import Tensor

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD
from real_openrlhf.algorithm.metrics import group_metrics
from real_openrlhf.algorithm.objective import ObjectiveSettings
from real_openrlhf.algorithm.step_plan import RankStep
from real_openrlhf.hooks.fixes.nonfinite_guard import NonFiniteError


class StepTable:
    """Filled wave by wave, or from the beginning where scores are known before any forward."""

    def __init__(self, settings: ObjectiveSettings, step: RankStep, update: int) -> None:
        self.settings, self.step, self.update = settings, step, update
        self.denominator = max(step.num_rollouts if settings.mean_over_rollouts else step.num_groups, 1)  # the loss's
        self.scores = torch.zeros(len(step.labels), dtype=torch.float64)
        self.weights = torch.zeros_like(self.scores)
        self.hinge = 0.0  # coefficient of DisCO's KL constraint
        if step.scores_known:
            self.scores += KNOWN_AT_OLD[settings.score]
            self.weights = step.weigh(settings, self.scores, torch.arange(len(self.scores))).weights

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

    def weights_of(self, rows: Tensor) -> Tensor:
        """A micro-batch's; a dummy, which has no rows, has one rollout of weight 0."""
        return self.weights[rows] if len(rows) else self.weights.new_zeros(1)

    @property
    def trained(self) -> Tensor:
        """(K,) rollouts that have a score: the others have weight 0 whatever it would be."""
        trained = torch.zeros_like(self.step.labels, dtype=torch.bool)
        for wave in self.step.waves:
            trained[wave.rows] = True
        return trained

    def columns(self) -> Tensor:
        """(4, K) group, label, score (nan: not trained), and weight in the loss of its own group."""
        scores = self.scores.masked_fill(~self.trained, torch.nan)
        return torch.stack([self.step.groups, self.step.labels, scores, self.weights * self.denominator])

    def metrics(self, score_drift: Tensor) -> dict[str, float]:
        """The metrics of the full table."""
        weighed = self.step.weigh(self.settings, self.scores, torch.arange(len(self.scores)))
        columns = (self.scores, self.step.labels, self.step.groups, weighed, self.settings)
        drift = float(score_drift)
        metrics = group_metrics(*columns, truncated=self.step.truncated, trained=self.trained, score_drift=drift)
        return {"policy_loss": float(weighed.loss), **metrics}
