"""The plan of a rollout batch: the schedule, and all numbers known before any forward pass.

Labels, groups, denominators and the place of every score in an update's table come with the plan, so ranks exchange
nothing but scores. One batch of three prompts, two responses each, two ranks, two prompts an update, and micro-batches
of one response; prompt 1 is all correct and left out:

    batch      response   0  1 | 2  3 | 4  5
               prompt     0  0 | 1  1 | 2  2
    Update 0   rollouts   0, 1, 4, 5: the rows of its table; its waves name rows
               Wave 0     rank 0: [[0]]   rank 1: [[1]]      (responses 0 and 1)
               Wave 1     rank 0: [[2]]   rank 1: [[3]]      (responses 4 and 5)
    Update 1   rollouts   2, 3: nothing is trained, so its one wave is a dummy forward on each rank
    RankShare  rank 0 holds responses 0 and 4, rank 1 holds 1 and 5; both have all updates

`plan_rollouts` makes the updates; `rank_shares` assigns the rollouts to the ranks.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

from torch import Tensor

from real_openrlhf.algorithm.groups import RolloutBatch, TrainingProgress
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
    depth: int | None = None  # None: the smallest depth that needs about as few micro-batches as packing without waves
    live_tokens: float = float("inf")  # tokens whose graphs fit in a rank's memory
    score_first: bool = False  # always score without gradient, then train
    known_at_old: bool = True  # scores are known without a forward while the policy equals the old policy
    spare: float = SPARE  # as `schedule.SPARE`
    steps: int = 0  # rollout steps of the run; 0: not known
    whole_groups: bool = True  # False: a rollout's gradient needs no other rollout, as in upstream's losses


@dataclass(frozen=True)
class PlannedUpdate:
    """One optimizer step, the same on every rank."""

    rollouts: Positions  # the rows of its table, by their place in the batch; also those that are left out
    waves: list[Wave]  # of rows
    table: RolloutBatch
    training_progress: TrainingProgress
    on_policy: bool  # the policy still equals the old policy, whose log-probabilities its forward gives
    scores_known: bool  # no exchange of scores: known before any forward, or not used
    num_groups: int
    num_rollouts: int  # valid rollouts, for objectives that average over them
    action_tokens: int
    rollouts_with_tokens: int
    trained_tokens: int  # also the weight of its token means when the batch's updates are merged

    @property
    def trained(self) -> Positions:
        """The rollouts that its waves train."""
        return [self.rollouts[row] for row in sorted(row for wave in self.waves for row in wave.positions)]

    def weigh(self, settings: ObjectiveSettings, scores: Tensor, rows: Tensor) -> WeighedLoss:
        """Loss and weights of these rows of the table, which are whole groups, with the update's denominators."""
        whole = (self.num_groups, self.num_rollouts)
        return score_weights(settings, scores[rows], self.table.select(rows), *whole, self.training_progress)


@dataclass(frozen=True)
class RankShare:
    """What one rank gets: all updates of the batch, and which rollouts it holds."""

    rank: int
    rollouts: Positions
    updates: list[PlannedUpdate]
    metrics: dict[str, float]

    @cached_property
    def _items(self) -> dict[int, int]:
        return {position: item for item, position in enumerate(self.rollouts)}

    def items(self, update: PlannedUpdate, rows: Positions) -> list[int]:
        """The places of these rows of an update among the rank's rollouts."""
        return [self._items[update.rollouts[row]] for row in rows]


def plan_rollouts(table: RolloutBatch, settings: PlanSettings, rollout_step: int = 0) -> list[PlannedUpdate]:
    """Split groups into updates, updates into waves, waves into ranks and micro-batches, from the arguments alone.

    Updates are made of all rollouts, so leaving some out does not change them; waves hold only those that are trained.
    """
    trained = {*table.trained}
    layout = Layout(table.whole.tolist(), settings.num_ranks, settings.limit)
    steps = steps_of_groups(table.groups.tolist(), settings.groups_per_step, settings.seed, rollout_step)
    trained_groups = [[[position for position in group if position in trained] for group in step] for step in steps]
    members = [[group for group in step if group] for step in trained_groups]
    updates = []
    for number, waves in enumerate(_in_waves(members, layout, settings)):
        on_policy = settings.whole_groups and number == 0
        rollouts = sorted(position for group in steps[number] for position in group)
        row_of, own = {position: row for row, position in enumerate(rollouts)}, table.select(rollouts)
        of_rows = [
            replace(wave, ranks=[[[row_of[position] for position in held] for held in rank] for rank in wave.ranks])
            for wave in waves
        ]
        tokens = int(own.lengths[[row for wave in of_rows for row in wave.positions]].sum())
        update = PlannedUpdate(
            rollouts=rollouts,
            waves=of_rows,
            table=own,
            training_progress=TrainingProgress(rollout_step + 1, settings.steps),
            on_policy=on_policy,
            scores_known=not settings.whole_groups or (on_policy and settings.known_at_old),
            num_groups=len(own.groups.unique()),
            num_rollouts=len(own) if own.has_gradient is None else int(own.has_gradient.sum()),
            action_tokens=max(int(own.lengths.sum()), 1),
            rollouts_with_tokens=int((own.lengths > 0).sum()),
            trained_tokens=tokens,
        )
        updates.append(update)
    return updates


def _in_waves(members: list[list[Positions]], layout: Layout, settings: PlanSettings) -> list[list[Wave]]:
    """The steps in waves; in the first one policy and old policy are equal."""
    if not settings.whole_groups:
        return [layout.waves_of_torn_groups(step) for step in members]
    head = [layout.waves_of_torn_groups(members[0])] if settings.known_at_old else []
    rest = members[len(head) :]

    def in_waves(depth: int) -> list[list[Wave]]:
        return [layout.waves(step, depth) for step in rest]

    if settings.depth is not None:
        waves = in_waves(settings.depth)
    else:
        plain = [layout.one_wave(step) for step in rest]
        largest = max((_tokens(held, layout) for wave in plain for rank in wave.ranks for held in rank), default=0)
        fitting = int(min(settings.live_tokens / max(largest, 1), max((wave.depth for wave in plain), default=1)))
        _, waves = shallowest(in_waves, sum(wave.depth for wave in plain), max(fitting, 1), settings.spare)

    def scored_first(wave: Wave) -> bool:
        live = max(sum(_tokens(held, layout) for held in rank) for rank in wave.ranks)
        return settings.score_first or (wave.depth > 1 and live > settings.live_tokens)

    return head + [[replace(wave, score_first=scored_first(wave)) for wave in step] for step in waves]


def _tokens(held: Positions, layout: Layout) -> int:
    """Tokens in a micro-batch's graph; a micro-batch of a fixed number of rollouts is padded to the longest."""
    lengths = [layout.lengths[position] for position in held]
    if layout.limit.size is not None:
        return len(lengths) * max(lengths, default=0)
    return sum(lengths)


def _owners(updates: Sequence[PlannedUpdate], count: int) -> list[int]:
    """The rank that holds each rollout; NOBODY where it is left out."""
    owner = [NOBODY] * count
    for update in updates:
        for wave in update.waves:
            for rank, micro_batches in enumerate(wave.ranks):
                for row in chain.from_iterable(micro_batches):
                    owner[update.rollouts[row]] = rank
    return owner


def rank_shares(updates: list[PlannedUpdate], table: RolloutBatch, num_ranks: int) -> list[RankShare]:
    """Each rank's rollouts and updates. A rank without rollouts gets the batch's shortest for its dummy forwards."""
    owner = _owners(updates, len(table))
    held: list[Positions] = [[] for _ in range(num_ranks)]
    for position, rank in enumerate(owner):
        if rank != NOBODY:
            held[rank].append(position)
    depths = [wave.depth for update in updates for wave in update.waves]
    crc = zlib.crc32(repr([update.rollouts for update in updates]).encode()) >> 8  # 24 bits: exact in a float32 log
    has_gradient = table.has_gradient
    metrics = {
        "real/max_live_micro_batches": float(max(depths, default=0)),
        "update/rollouts_crc": float(crc),
        "update/frac_nonzero_weight": 1.0 if has_gradient is None else float(has_gradient.double().mean()),
        "update/frac_trained": sum(map(len, held)) / max(len(owner), 1),
    }
    dummy = [int(table.whole.argmin())]
    return [RankShare(rank, own or dummy, updates, metrics) for rank, own in enumerate(held)]
