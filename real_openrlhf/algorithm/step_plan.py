"""The plan of a rollout batch for every rank: the schedule, and all numbers known before any forward pass.

Labels, groups, denominators and the place of every score in the step's table come with the plan, so ranks exchange
nothing but scores. `plan_rollouts` makes the plan; `rank_plans` writes out the part that each rank executes.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from real_openrlhf.algorithm.groups import Moment, Table
from real_openrlhf.algorithm.objective import ObjectiveSettings, WeighedLoss, score_weights
from real_openrlhf.algorithm.schedule import SPARE, Layout, Limit, Positions, Wave, shallowest, steps_of_groups

NOBODY = -1


@dataclass(frozen=True)
class PlanSettings:
    """The settings that decide the layout of a rollout batch, beside the batch itself."""

    groups_per_step: int
    num_ranks: int
    limit: Limit
    seed: int
    epochs: int = 1
    depth: int | None = None  # None: the smallest depth that needs about as few micro-batches as packing without waves
    kept_tokens: float = float("inf")  # tokens whose graphs fit in a rank's memory
    score_first: bool = False  # always score without gradient, then train
    known_at_old: bool = True  # scores are known without a forward while the policy equals the old policy
    spare: float = SPARE  # as `schedule.SPARE`
    steps: int = 0  # rollout steps of the run; 0: not known
    whole_groups: bool = True  # False: a rollout's gradient needs no other rollout, as in upstream's losses


@dataclass(frozen=True)
class PlannedStep:
    """One optimizer step over all ranks."""

    dealt: Positions  # its rollouts, including those that are left out
    waves: list[Wave]
    on_policy: bool  # the policy still equals the old policy
    scores_known: bool  # no exchange of scores: known before any forward, or not used

    @property
    def trained(self) -> Positions:
        return sorted(position for wave in self.waves for position in wave.positions)


@dataclass(frozen=True)
class BatchPlan:
    """All optimizer steps of a rollout batch, epoch after epoch."""

    steps: list[PlannedStep]
    moment: Moment
    owner: list[int]  # the rank that holds a rollout; NOBODY where it is left out

    @property
    def first_update(self) -> Positions:
        """Rollouts whose old log-probabilities the training forward computes: the policy equals the old policy."""
        return self.steps[0].trained if self.steps else []

    @property
    def trained(self) -> Positions:
        return [position for position, rank in enumerate(self.owner) if rank != NOBODY]


def plan_rollouts(table: Table, settings: PlanSettings, rollout_step: int = 0) -> BatchPlan:
    """Split groups into steps, steps into waves, waves into ranks and micro-batches, from the arguments alone.

    Steps are made of all rollouts, so leaving some out does not change them; waves hold only those that are trained.
    """
    groups, trained = table.groups.tolist(), {*table.trained}
    layout = Layout(table.whole.tolist(), settings.num_ranks, settings.limit)
    steps: list[PlannedStep] = []
    owner = [NOBODY] * len(groups)
    for epoch in range(settings.epochs):
        dealt = steps_of_groups(
            groups, settings.groups_per_step, settings.seed, rollout_step=rollout_step, epoch=epoch
        )
        kept = [[[one for one in group if one in trained] for group in step] for step in dealt]
        members = [[group for group in step if group] for step in kept]
        for number, waves in enumerate(_epoch_in_waves(members, layout, settings, first=epoch == 0)):
            on_policy = settings.whole_groups and epoch == number == 0
            known = not settings.whole_groups or (on_policy and settings.known_at_old)
            own = sorted(position for group in dealt[number] for position in group)
            steps.append(PlannedStep(own, waves, on_policy, scores_known=known))
        if epoch == 0:
            owner = _owners(steps, len(groups))
            layout = replace(layout, owner=owner)
    return BatchPlan(steps, Moment(rollout_step + 1, settings.steps), owner)


def _epoch_in_waves(
    members: list[list[Positions]], layout: Layout, settings: PlanSettings, first: bool
) -> list[list[Wave]]:
    """The steps of an epoch in waves; in the first step of the first epoch policy and old policy are equal."""
    if not settings.whole_groups:
        return [layout.waves_of_torn_groups(step) for step in members]
    known = first and settings.known_at_old
    head = [layout.waves_of_torn_groups(members[0])] if known else []
    rest = members[1:] if known else members
    waves = _in_waves(rest, layout, settings)

    def scored_first(wave: Wave) -> bool:
        kept = max(sum(_tokens(held, layout) for held in rank) for rank in wave.ranks)
        return settings.score_first or (wave.depth > 1 and kept > settings.kept_tokens)

    return head + [[replace(wave, score_first=scored_first(wave)) for wave in step] for step in waves]


def _in_waves(steps: list[list[Positions]], layout: Layout, settings: PlanSettings) -> list[list[Wave]]:
    if settings.depth is not None:
        return [layout.waves(step, settings.depth) for step in steps]
    plain = [layout.one_wave(step) for step in steps]
    largest = max((_tokens(held, layout) for wave in plain for rank in wave.ranks for held in rank), default=0)
    fitting = int(min(settings.kept_tokens / max(largest, 1), max((wave.depth for wave in plain), default=1)))
    _, waves = shallowest(
        lambda depth: [layout.waves(step, depth) for step in steps],
        plain=sum(wave.depth for wave in plain),
        most=max(fitting, 1),
        spare=settings.spare,
    )
    return waves


def _tokens(held: Positions, layout: Layout) -> int:
    """Tokens in a micro-batch's graph; a micro-batch of a fixed number of rollouts is padded to the longest."""
    lengths = [layout.lengths[position] for position in held]
    if layout.limit.size is not None:
        return len(lengths) * max(lengths, default=0)
    return sum(lengths)


def _owners(steps: list[PlannedStep], count: int) -> list[int]:
    owner = [NOBODY] * count
    for wave in (wave for step in steps for wave in step.waves):
        for rank, micro_batches in enumerate(wave.ranks):
            for position in chain.from_iterable(micro_batches):
                owner[position] = rank
    return owner


# The parts of the plan for one rank.


@dataclass(frozen=True)
class MicroBatch:
    """Rollouts of one forward pass; none for a dummy, because ZeRO-3 needs equally many forwards on all ranks."""

    items: list[int]  # their positions among the rank's rollouts
    rows: Tensor  # their rows in the step's table


@dataclass(frozen=True)
class RankWave:
    """A rank's micro-batches of a wave, and the rows of all rollouts that the wave trains on all ranks."""

    micro_batches: list[MicroBatch]
    rows: Tensor
    score_first: bool


@dataclass(frozen=True)
class RankStep:
    """An optimizer step: the table of its rollouts on all ranks, the same on each, and this rank's waves."""

    table: Table
    moment: Moment
    num_groups: int
    num_rollouts: int  # valid rollouts, for objectives that average over them
    action_tokens: int  # of all ranks
    trained_tokens: int  # of trained rollouts, on all ranks
    log_weight: float  # weight of its token means when the batch's steps are merged
    rollouts_with_tokens: int  # of all ranks
    scores_known: bool  # as in `PlannedStep`
    makes_old_log_probs: bool  # its training forward gives the old log-probabilities: policy and old policy are equal
    waves: list[RankWave]

    def weigh(self, settings: ObjectiveSettings, scores: Tensor, rows: Tensor) -> WeighedLoss:
        """Loss and weights of these rows of the table, which are whole groups, with the step's denominators."""
        whole = (self.num_groups, self.num_rollouts)
        return score_weights(settings, scores[rows], self.table.of(rows), *whole, self.moment)


@dataclass(frozen=True)
class RankPlan:
    """The plan that one rank gets with its rollouts."""

    steps: list[RankStep]
    metrics: dict[str, float]


def rank_plans(
    plan: BatchPlan, table: Table, num_ranks: int, forwarded: Positions
) -> tuple[list[Positions], list[RankPlan]]:
    """(each rank's rollouts, each rank's plan). `forwarded` rollouts had a forward for their old log-probabilities.

    A rank without rollouts gets the batch's shortest rollout for its dummy forwards. If rollouts are left out, the
    token means of the batch weigh each update by its trained tokens; otherwise all updates count alike.
    """
    held: list[Positions] = [[] for _ in range(num_ranks)]
    for position in plan.trained:
        held[plan.owner[position]].append(position)
    held = [own or [int(table.whole.argmin())] for own in held]
    items = [{position: item for item, position in enumerate(own)} for own in held]
    unknown = len(forwarded) < len(plan.trained)
    steps = [_rank_steps(step, plan, unknown, table, items) for step in plan.steps]
    depths = [wave.depth for step in plan.steps for wave in step.waves]
    crc = zlib.crc32(repr([step.dealt for step in plan.steps]).encode()) >> 8  # 24 bits: exact in a float32 log
    metrics = {
        "real/old_forward_share": len(forwarded) / max(len(plan.owner), 1),
        "real/wave_depth": float(max(depths, default=0)),
        "real/micro_batches": sum(depths) / max(len(plan.steps), 1),
        "update/rollouts_crc": float(crc),
        "update/signal_share": 1.0 if table.signal is None else float(table.signal.double().mean()),
        "update/trained_share": len(plan.trained) / max(len(plan.owner), 1),
    }
    return held, [RankPlan([step[rank] for step in steps], metrics) for rank in range(num_ranks)]


def _rank_steps(
    step: PlannedStep, plan: BatchPlan, unknown: bool, table: Table, items: Sequence[dict[int, int]]
) -> list[RankStep]:
    row_of = {position: row for row, position in enumerate(step.dealt)}
    own, tokens = table.of(step.dealt), int(table.lengths[step.trained].sum())
    shared = RankStep(
        table=own,
        moment=plan.moment,
        num_groups=len(own.groups.unique()),
        num_rollouts=len(own) if own.signal is None else int(own.signal.sum()),
        action_tokens=max(int(own.lengths.sum()), 1),
        trained_tokens=tokens,
        log_weight=1.0 if table.trains is None else float(tokens),
        rollouts_with_tokens=int((own.lengths > 0).sum()),
        scores_known=step.scores_known,
        makes_old_log_probs=step.on_policy and unknown,
        waves=[],
    )

    def rows(positions: Positions) -> Tensor:
        return torch.tensor([row_of[position] for position in positions], dtype=torch.long)

    def waves_of(rank: int, item_of: dict[int, int]) -> Iterator[RankWave]:
        for wave, trained in zip(step.waves, wave_rows, strict=True):
            batches = [MicroBatch([item_of[position] for position in held], rows(held)) for held in wave.ranks[rank]]
            yield RankWave(batches, trained, wave.score_first)

    wave_rows = [rows(wave.positions) for wave in step.waves]
    return [replace(shared, waves=[*waves_of(rank, item_of)]) for rank, item_of in enumerate(items)]
