"""The paper's formulas over scores, and the weight that each rollout gets from them.

A step's rollouts are one flat table: `scores (K,)`, `labels (K,)`, `groups (K,)`. A group is a prompt; its id is any
integer, its rollouts may stand in any order and number. Scores are the only thing that the formulas know about the
model, so a group may be torn over micro-batches and ranks: exchange the scores, weigh them here, and train on
`sum_k weight_k * score_k`.

To add an objective, write one function `(scores, groups, settings) -> loss per group` and enter it in `OBJECTIVES`.
Nobody derives a gradient by hand: `score_weights` asks autograd, on the table alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

POSITIVE = 1
NEGATIVE = 0
IGNORED = -1  # the verifier failed or timed out: on neither side, weight exactly 0
UNPARSABLE = -2  # a negative without a readable answer: one preference level below NEGATIVE for TRPA, else a NEGATIVE

UNIFORM_GROUPS = ("drop", "keep")
BCE_REDUCTIONS = ("sum", "mean")

# What a rollout's score is the mean of, over its action tokens.
SCORES: dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]] = {
    "log_ratio_old": lambda new, old, ref: new - old,  # the paper's relative log-probability
    "log_ratio_ref": lambda new, old, ref: new - ref,
    "log_prob": lambda new, old, ref: new,
    "ratio_old": lambda new, old, ref: (new - old).exp(),
}
# Those that are known without a forward pass while the policy still is the old one.
KNOWN_AT_OLD = {"log_ratio_old": 0.0, "ratio_old": 1.0}


def rollout_scores(
    kind: str, log_probs: Tensor, old_log_probs: Tensor, ref_log_probs: Tensor | None, action_mask: Tensor
) -> Tensor:
    """(B, T) log-probabilities -> (B,) scores, differentiable; a rollout without action tokens scores exactly 0."""
    if kind == "log_ratio_ref" and ref_log_probs is None:
        raise ValueError("score kind log_ratio_ref needs ref_log_probs, the reference policy's log-probabilities")
    mask = action_mask.bool()

    def visible(log_probs: Tensor | None) -> Tensor | None:
        # Select before any arithmetic: 0 * nan is nan, also in a gradient.
        return None if log_probs is None else torch.where(mask, log_probs, 0.0)

    per_token = SCORES[kind](visible(log_probs), visible(old_log_probs), visible(ref_log_probs))
    return torch.where(mask, per_token, 0.0).sum(-1) / mask.sum(-1).clamp(min=1)


@dataclass(frozen=True)
class Groups:
    """Which rollout is in which group and on which side, with the per-group sums that formulas are made of."""

    labels: Tensor  # (K,)
    index: Tensor  # (K,) position of the rollout's group, 0 .. count-1
    count: int

    @property
    def positive(self) -> Tensor:
        return self.labels == POSITIVE

    @property
    def negative(self) -> Tensor:
        return (self.labels == NEGATIVE) | (self.labels == UNPARSABLE)

    @property
    def valid(self) -> Tensor:
        return self.labels != IGNORED

    def sum(self, values: Tensor, where: Tensor) -> Tensor:
        """Sum of the chosen values of each group, (K,) -> (count,)."""
        return values.new_zeros(self.count).index_add(0, self.index, torch.where(where, values, 0.0))

    def size(self, where: Tensor) -> Tensor:
        """How many rollouts of each group are chosen."""
        return torch.zeros(self.count, dtype=torch.long, device=where.device).index_add(0, self.index, where.long())

    def mean(self, values: Tensor, where: Tensor) -> Tensor:
        """Mean of the chosen values of each group; 0 where there are none."""
        return self.sum(values, where) / self.size(where).clamp(min=1)

    def logsumexp(self, values: Tensor, where: Tensor) -> Tensor:
        """log sum exp of the chosen values of each group; -inf, with zero gradient, where there are none."""
        values = values.masked_fill(~where, -torch.inf)
        top = values.new_full((self.count,), -torch.inf).scatter_reduce(0, self.index, values.detach(), "amax")
        top = torch.where(top == -torch.inf, 0.0, top)
        total = self.sum((values - top[self.index]).exp(), where)
        empty = self.size(where) == 0
        return torch.where(empty, -torch.inf, top + torch.where(empty, 1.0, total).log())

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Positions (preferred, other) of all pairs in a group whose first member has the higher label."""
        order = self.index.argsort(stable=True)
        sizes = torch.bincount(self.index, minlength=self.count)
        repeats = sizes[self.index[order]]
        start = (sizes.cumsum(0) - sizes)[self.index[order]]
        within = torch.arange(int(repeats.sum()), device=order.device)
        within = within - (repeats.cumsum(0) - repeats).repeat_interleave(repeats)
        first = order.repeat_interleave(repeats)
        second = order[start.repeat_interleave(repeats) + within]
        ranked = self.valid[first] & self.valid[second] & (self.labels[first] > self.labels[second])
        return first[ranked], second[ranked]

    def ignoring(self, where: Tensor) -> "Groups":
        """The same groups with the chosen rollouts on neither side."""
        return replace(self, labels=self.labels.masked_fill(where, IGNORED))

    def uniform(self) -> Tensor:
        """(K,): the rollout's group holds one label only among its valid rollouts."""
        big = torch.iinfo(torch.long).max
        labels = self.labels.long()
        low = labels.new_full((self.count,), big)
        low = low.scatter_reduce(0, self.index, torch.where(self.valid, labels, big), "amin")
        high = labels.new_full((self.count,), -big)
        high = high.scatter_reduce(0, self.index, torch.where(self.valid, labels, -big), "amax")
        return (low >= high)[self.index]


@dataclass(frozen=True)
class Objective:
    """A formula, the score that it is written over, and the temperature that its paper uses."""

    loss: Callable[[Tensor, Groups, "ObjectiveSettings"], Tensor]
    score: str = "log_ratio_old"
    tau: float = 0.5
    levels: bool = False  # the formula tells UNPARSABLE from NEGATIVE


def real(scores: Tensor, groups: Groups, settings: "ObjectiveSettings") -> Tensor:
    """Eq. REAL: log(1 + sum_P exp(-s/tau)) + log(1 + sum_N exp(s/tau)); the ones are the anchor logit 0."""
    positives = groups.logsumexp(-scores / settings.tau, groups.positive)
    negatives = groups.logsumexp(scores / settings.tau, groups.negative)
    anchor = torch.zeros_like(positives)
    return torch.logaddexp(anchor, positives) + torch.logaddexp(anchor, negatives)


def no_anchor(scores: Tensor, groups: Groups, settings: "ObjectiveSettings") -> Tensor:
    """Eq. vanilla: log(1 + sum_N exp(s/tau) * sum_P exp(-s/tau)); 0 where a side is empty."""
    positives = groups.logsumexp(-scores / settings.tau, groups.positive)
    negatives = groups.logsumexp(scores / settings.tau, groups.negative)
    return torch.logaddexp(torch.zeros_like(positives), positives + negatives)


def bce(scores: Tensor, groups: Groups, settings: "ObjectiveSettings") -> Tensor:
    """Eq. BCE: -(sum_P log sigmoid(s/tau) + sum_N log(1 - sigmoid(s/tau)))."""
    logits = torch.where(groups.positive, scores, -scores) / settings.tau
    return -groups.sum(F.logsigmoid(logits), groups.valid)


def constant(scores: Tensor, groups: Groups, settings: "ObjectiveSettings") -> Tensor:
    """The control: REAL's tangent at score 0, so its weights stay at their class balance, 1/tau/(1+P) and 1/tau/(1+N).

    What is left of REAL when scores stay near 0.
    """
    positives, negatives = (groups.size(side).to(scores) for side in (groups.positive, groups.negative))
    pull = groups.sum(scores / settings.tau, groups.positive) / (1 + positives)
    push = groups.sum(scores / settings.tau, groups.negative) / (1 + negatives)
    return (positives.log1p() - pull) + (negatives.log1p() + push)


def trpa(scores: Tensor, groups: Groups, settings: "ObjectiveSettings") -> Tensor:
    """TRPA: -mean log sigmoid(a beta (s_w - s_l)) over the group's pairs of unequal preference level; 0 without pairs.

    Levels are correct > wrong > unparsable; a is 2.5 where the preferred rollout is correct, else 1.
    """
    preferred, other = groups.pairs()
    gain = torch.where(groups.labels[preferred] == POSITIVE, 2.5, 1.0).to(scores)
    losses = -F.logsigmoid(gain * settings.trpa_beta * (scores[preferred] - scores[other]))
    pairs = replace(groups, index=groups.index[preferred])
    return pairs.mean(losses, torch.ones_like(preferred, dtype=torch.bool))


def disco(scores: Tensor, groups: Groups, settings: "ObjectiveSettings") -> Tensor:
    """DisCO: -(mean_P s - tau log mean_N exp(s/tau)), without its KL constraint (loss.kl_hinge_coef); empty side: 0."""
    negatives = groups.size(groups.negative).to(scores)
    log_mean = groups.logsumexp(scores / settings.tau, groups.negative) - negatives.clamp(min=1).log()
    return torch.where(negatives > 0, settings.tau * log_mean, 0.0) - groups.mean(scores, groups.positive)


OBJECTIVES: dict[str, Objective] = {
    "real": Objective(real),
    "no_anchor": Objective(no_anchor),
    "bce": Objective(bce),
    "constant": Objective(constant),
    "trpa": Objective(trpa, score="log_ratio_ref", levels=True),
    "disco_logl": Objective(disco, score="log_prob", tau=10.0),
    "disco_lratio": Objective(disco, score="ratio_old", tau=1.0),
}


@dataclass(frozen=True)
class ObjectiveSettings:
    """Which formula, with which constants; `tau=None` takes the objective's own."""

    name: str = "real"
    tau: float | None = None
    uniform_groups: str = "drop"
    bce_reduction: str = "sum"
    trpa_beta: float = 0.1

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise ValueError(f"unknown objective {self.name!r}: choose one of {', '.join(OBJECTIVES)}")
        if self.uniform_groups not in UNIFORM_GROUPS:
            raise ValueError(f"uniform_groups is {self.uniform_groups!r}: choose drop or keep")
        if self.bce_reduction not in BCE_REDUCTIONS:
            raise ValueError(f"bce_reduction is {self.bce_reduction!r}: choose sum or mean")
        if self.tau is None:
            object.__setattr__(self, "tau", self.objective.tau)
        if not 0 < self.tau < float("inf"):
            raise ValueError(f"tau is {self.tau}: it must be a positive number")

    @property
    def objective(self) -> Objective:
        return OBJECTIVES[self.name]

    @property
    def mean_over_rollouts(self) -> bool:
        """The authors' BCE averages over valid rollouts; everything else over prompt groups."""
        return self.name == "bce" and self.bce_reduction == "mean"


@dataclass(frozen=True)
class GroupLoss:
    """The loss of a table of scores, and what a backward pass needs to know about it."""

    loss: Tensor  # (): sum of the group losses / denominator
    loss_per_group: Tensor  # (groups in the table,), in ascending order of group id
    loss_pos: Tensor  # (): the loss if the negatives were ignored; 0 where both sides meet in one term
    loss_neg: Tensor  # (): the loss if the positives were ignored; 0 where both sides meet in one term
    denominator: int  # prompt groups of the optimizer step, or its valid rollouts for bce with reduction mean
    weights: Tensor | None = None  # (K,): d loss / d scores

    @property
    def rollout_weights(self) -> Tensor:
        """(K,): d (the rollout's own group loss) / d score, the paper's signed W; |W| < 1/tau for REAL."""
        return self.weights * self.denominator


def make_groups(settings: ObjectiveSettings, labels: Tensor, groups: Tensor) -> Groups:
    """The table's groups as the objective sees them: levels merged, uniform groups ignored if they are to be dropped."""
    ids, index = torch.unique(groups, return_inverse=True)
    if not settings.objective.levels:
        labels = labels.masked_fill(labels == UNPARSABLE, NEGATIVE)
    table = Groups(labels, index, len(ids))
    return table.ignoring(table.uniform()) if settings.uniform_groups == "drop" else table


def count_valid(settings: ObjectiveSettings, labels: Tensor, groups: Tensor) -> int:
    """How many rollouts count, the `num_rollouts` of a step: needs no scores, so it is known before any forward."""
    return int(make_groups(settings, labels, groups).valid.sum())


def group_loss(
    settings: ObjectiveSettings,
    scores: Tensor,
    labels: Tensor,
    groups: Tensor,
    num_groups: int | None = None,
    num_rollouts: int | None = None,
) -> GroupLoss:
    """The objective's loss, differentiable in the scores.

    `num_groups` is the denominator: the prompt groups of the whole optimizer step, with uniform, dropped and fully
    ignored ones. Left out, it is the number of groups in the table. Where the table is only a part of the step (whole
    groups inside a micro-batch), bce with reduction mean also needs `num_rollouts`, the step's `count_valid`.
    """
    table = make_groups(settings, labels, groups)
    scores = scores.masked_fill(~table.valid, 0.0)
    if settings.mean_over_rollouts:
        denominator = int(table.valid.sum()) if num_rollouts is None else num_rollouts
    else:
        denominator = table.count if num_groups is None else num_groups
        if denominator < table.count:
            raise ValueError(f"num_groups is {denominator}, but the table holds {table.count} groups")
    denominator = max(denominator, 1)

    def total(groups: Groups) -> Tensor:
        return settings.objective.loss(scores, groups, settings).sum() / denominator

    loss_per_group = settings.objective.loss(scores, table, settings)
    return GroupLoss(
        loss=loss_per_group.sum() / denominator,
        loss_per_group=loss_per_group.detach(),
        loss_pos=total(table.ignoring(table.negative)).detach(),
        loss_neg=total(table.ignoring(table.positive)).detach(),
        denominator=denominator,
    )


def score_weights(
    settings: ObjectiveSettings,
    scores: Tensor,
    labels: Tensor,
    groups: Tensor,
    num_groups: int | None = None,
    num_rollouts: int | None = None,
) -> GroupLoss:
    """d loss / d scores by autograd on the table: all that a backward pass through the model must know of the groups."""
    with torch.enable_grad():
        leaf = scores.detach().clone().requires_grad_()
        result = group_loss(settings, leaf, labels, groups, num_groups, num_rollouts)
        (weights,) = torch.autograd.grad(result.loss, leaf)
    return replace(result, loss=result.loss.detach(), weights=weights)
