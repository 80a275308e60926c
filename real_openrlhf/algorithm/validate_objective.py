"""Try an objective on a small table of scores before a run trains with it."""

import traceback
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD
from real_openrlhf.algorithm.groups import (
    IGNORED,
    NEGATIVE,
    POSITIVE,
    UNPARSABLE,
    Groups,
    RolloutBatch,
    TrainingProgress,
)
from real_openrlhf.algorithm.objective import make_groups, rollout_scores
from real_openrlhf.algorithm.settings import ObjectiveSettings
from real_openrlhf.algorithm.token_update import TokenGroup, rollout_columns
from real_openrlhf.base.errors import first_line
from real_openrlhf.base.user_files import raised

# One group of each kind. The last two are as large as the run's, because a loss may act from some size on (Pass@k).
KINDS = (
    "a group with both sides",
    "a group of correct responses alone",
    "a group of incorrect responses alone",
    "a group without a graded response",
    "a group of one correct and one incorrect response",
    "a whole group with one correct response",
    "a whole group with two correct responses",
)
REMEDY = (
    "On an empty side groups.sum, groups.mean, groups.std and groups.zscores are 0, groups.logsumexp and "
    "groups.logmeanexp are -inf: replace these, as with `.where(groups.size(groups.valid) > 0, 0.0)` for a group "
    "and `.where(groups.valid, 0.0)` a rollout"
)
LABELS = (POSITIVE, NEGATIVE, IGNORED, UNPARSABLE, POSITIVE, POSITIVE, NEGATIVE, NEGATIVE, IGNORED, POSITIVE, NEGATIVE)
GROUPS = (0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 4)
REWARDS = (1.0, 0.25, 0.0, 0.0, 0.75, 1.0, 0.5, 0.0, 0.0, 1.0, 0.0)  # for objectives of graded rewards
LENGTHS = (3, 5, 2, 4, 1, 6, 2, 2, 3, 7, 1)
DRIFT = (0.2, -0.1, 0.3, 0.1, -0.2, 0.25, 0.15, -0.3, 0.05, -0.15, 0.35)


def objective_problem(settings: ObjectiveSettings, steps: int = 10, sampled: bool = True, size: int = 8) -> str | None:
    """The defect of the objective's loss, in one line with the fix; None if it can train in a run of these steps.

    `sampled`: the run has vLLM's log-probabilities. `size`: responses to a prompt.
    """
    batch, drift = _rollouts(size)
    of_tokens = settings.objective.of_tokens
    of_moment = partial(_problem_of_tokens, sampled=sampled) if of_tokens else _problem_of_groups
    problems = {}
    for step in (1, max(steps, 1)):
        try:
            problems[step] = of_moment(settings, batch, drift, TrainingProgress(step=step, steps=steps))
        except (Exception, SystemExit) as error:
            takes = f"rollouts of 1 to {max(LENGTHS)} tokens" if of_tokens else ", ".join(KINDS)
            # of a `raise`, as by a file that checks its settings, the message says what to change
            raising = traceback.extract_tb(error.__traceback__)[-1].line or ""
            own = isinstance(error, ValueError) and raising.startswith("raise ")
            change = f"it raises {raised(error)}. Change it so that it takes {takes}"
            problems[step] = first_line(error) if own else change
    if len({*problems.values()}) < 2:
        return problems[1]
    # a defect at one end only, as of a factor `progress`, which is 0 in the first step
    return next(f"in step {step} of {steps} {problem}" for step, problem in problems.items() if problem)


def _rollouts(size: int) -> tuple[RolloutBatch, Tensor]:
    """The table of all kinds of groups, and how far each rollout's score has moved."""
    labels, groups = [*LABELS], [*GROUPS]
    for correct in (1, 2):
        labels += [POSITIVE] * correct + [NEGATIVE] * max(size - correct, 1)
        groups += [groups[-1] + 1] * (len(labels) - len(groups))
    more = torch.arange(len(labels) - len(LABELS))
    rewards = torch.cat([torch.tensor(REWARDS), (more % 4) / 4.0])
    drift = torch.cat([torch.tensor(DRIFT, dtype=torch.float64), (more + 1.0).double().sin() / 3])
    lengths = torch.cat([torch.tensor(LENGTHS), more % max(LENGTHS) + 1])
    return RolloutBatch(torch.tensor(labels), torch.tensor(groups), rewards, lengths), drift


def _problem_of_groups(
    settings: ObjectiveSettings, batch: RolloutBatch, drift: Tensor, training_progress: TrainingProgress
) -> str | None:
    batch = batch if settings.objective.graded else replace(batch, values=None)
    # With uniform groups kept, the formula meets empty sides, as it does in every run for the metrics of each side.
    every_group = replace(settings, uniform_groups="keep")
    groups = make_groups(every_group, batch, training_progress)
    table = batch.select([*range(len(batch))] * 2)  # as many groups again, in the same micro-batch
    table = replace(table, groups=torch.cat([batch.groups, batch.groups + groups.count]))
    beside = make_groups(every_group, table, training_progress)
    moves = []
    for moved in (0.0, 1.0):  # in the first update after a rollout all scores are equal
        scores = (_on_policy(settings.score, batch.lengths) + moved * drift).requires_grad_()
        loss = settings.objective.loss(scores, groups, settings)
        if not isinstance(loss, Tensor) or loss.shape != (groups.count,):
            return f"it returns {_kind(loss)}, not one loss for each group, ({groups.count},). Use groups.sum"
        if not loss.requires_grad:
            return "its loss has no gradient. Let it depend on the scores, and do not detach them"
        slopes = torch.stack([torch.autograd.grad(own, scores, retain_graph=True)[0] for own in loss])
        wrong = ~slopes.isfinite().all(0)  # of each rollout
        finite = groups.size(wrong) == 0 if loss.isfinite().all() else loss.isfinite()
        if not finite.all():
            kinds = ", ".join(kind for kind, good in zip(KINDS, finite.tolist(), strict=True) if not good)
            return f"its loss or gradient is not finite for {kinds}. {REMEDY}"
        if not torch.equal(loss, settings.objective.loss(scores, groups, settings)):
            return "it gives another loss when called again, so ranks would disagree. Leave chance out"
        if slopes[:, ~groups.valid].any():
            return "it gives weight to ungraded responses. Use groups.positive, groups.negative or groups.valid"
        others = torch.cat([scores, scores.flip(0) + 1]).detach()
        among_others = settings.objective.loss(others, beside, settings)[: groups.count]
        reads_others = slopes[groups.index != torch.arange(groups.count)[:, None]].any()
        if reads_others or not torch.allclose(among_others, loss, rtol=1e-9):
            return "the loss of a group reads other groups. Use the sums that `groups` makes of each group"
        moves.append(bool(slopes.any()))
    # Scores that start equal stay so without a gradient there; those against another model start apart.
    if moves[0] or (moves[1] and settings.score not in KNOWN_AT_OLD):
        return None
    where = "while scores are equal, as when a batch starts" if moves[1] else "everywhere"
    largest = int(groups.size(groups.valid).max())
    return (
        f"its gradient is 0 {where}, in groups of up to {largest} responses, so nothing would be trained. Let it "
        "depend on the scores, or give other settings"
    )


def _on_policy(kind: str, lengths: Tensor) -> Tensor:
    """The scores where nothing has moved: policy, old policy, reference and sampler agree on every token."""
    action_mask = torch.arange(max(LENGTHS)) < lengths[:, None]
    log_probs = torch.full(action_mask.shape, -1.0, dtype=torch.float64)
    return rollout_scores(kind, log_probs, log_probs, log_probs, action_mask, log_probs)


def _kind(result: object) -> str:
    return f"shape {tuple(result.shape)}" if isinstance(result, Tensor) else type(result).__name__


def _problem_of_tokens(
    settings: ObjectiveSettings,
    batch: RolloutBatch,
    drift: Tensor,
    training_progress: TrainingProgress,
    sampled: bool,
) -> str | None:
    """The same for a loss of tokens: it must weigh each rollout alike in any micro-batch."""
    mask = torch.arange(max(LENGTHS)) < batch.lengths[:, None]
    moved = drift.float()[:, None] * (torch.arange(max(LENGTHS)) + 1.0).sin() * mask
    groups = Groups.from_batch(batch)
    advantages = groups.zscores(groups.positive.double(), groups.valid).float()[:, None] * mask
    columns = rollout_columns(groups)[..., None]

    def weights(rows: slice, tokens: int) -> Tensor:
        old, other = ((moved.roll(shift, 0) * mask)[rows, :tokens] for shift in (2, 1))
        reference = old + other if settings.objective.needs_reference else None
        positive, *known = columns[:, rows]
        group = TokenGroup(
            *(settings, positive > 0, *known, old - 1.0, other if sampled else None, reference),
            **vars(training_progress),
        )
        return settings.objective.loss(moved[rows, :tokens], advantages[rows, :tokens], mask[rows, :tokens], group)

    result = weights(slice(None), max(LENGTHS))
    if not isinstance(result, Tensor) or result.shape != mask.shape:
        return f"it returns {_kind(result)}, not one weight for each token, {tuple(mask.shape)}"
    alone = [weights(slice(row, row + 1), tokens)[0] for row, tokens in enumerate(batch.lengths.tolist())]
    if not result[mask].isfinite().all():
        return "its weights are not finite. Clamp what an exponential or a division may make large"
    if not result[mask].any():
        return "its weights are 0 everywhere, so nothing would be trained"
    if not torch.allclose(result[mask], torch.cat(alone), rtol=1e-4, atol=1e-6):
        return (
            "the weights of a rollout change with the other rollouts of its micro-batch. Sum over the last dimension "
            "only, and leave out what `mask` leaves out"
        )
    known = groups.valid[:, None]
    if settings.objective.two_sides and result[mask & known & (advantages == 0)].any():
        return (
            "it gives weights to tokens of advantage 0, which --train.skip_zero_gradient leaves out. Multiply by the "
            "advantage, or declare TokenLoss(..., two_sides=False)"
        )
    return None
