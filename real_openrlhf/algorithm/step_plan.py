"""The plan of a rollout batch: the schedule, and all numbers known before any forward pass.

Labels, groups and denominators come with the plan, so ranks exchange nothing but scores. One batch of three prompts,
two responses each, two ranks, two prompts per update, and micro-batches of one response; prompt 1 is all correct and
left out. A number is everywhere the position of a response in the batch:

    batch      response   0  1 | 2  3 | 4  5
               prompt     0  0 | 1  1 | 2  2
    Update 0   rollouts   0, 1, 4, 5
               Wave 0     rank 0: [[0]]   rank 1: [[1]]
               Wave 1     rank 0: [[4]]   rank 1: [[5]]
    Update 1   rollouts   2, 3: nothing is trained, so its one wave is a dummy forward on each rank
    held       rank 0: 0 and 4, rank 1: 1 and 5
"""

import zlib
from dataclasses import dataclass, replace
from itertools import chain

from torch import Tensor

from real_openrlhf.algorithm.groups import RolloutBatch, TrainingProgress
from real_openrlhf.algorithm.objective import WeighedLoss, score_weights
from real_openrlhf.algorithm.schedule import SPARE, Packing, Position, Positions, Wave, shallowest, updates_of_groups
from real_openrlhf.algorithm.settings import ObjectiveSettings


@dataclass(frozen=True)
class PlanRules:
    """What decides the plan of a rollout batch, beside the batch itself."""

    groups_per_update: int
    num_ranks: int
    size: int | None  # rollouts of a micro-batch, or
    max_tokens: int | None  # its tokens
    seed: int
    depth: int | None = None  # None: the smallest depth that needs about as few micro-batches as packing without waves
    live_tokens: float = float("inf")  # tokens whose graphs fit in a rank's memory
    score_first: bool = False  # always score without gradient, then train
    known_at_old: bool = True  # scores are known without a forward while the policy equals the old policy
    spare: float = SPARE  # as `schedule.SPARE`
    steps: int = 0  # rollout steps of the run; 0: not known
    by_scores: bool = True  # False: a rollout's gradient needs no other rollout, as in upstream's losses


@dataclass(frozen=True)
class PlannedUpdate:
    """One optimizer step, an *update*, the same on every rank."""

    rollouts: Positions  # in ascending order; also those that are left out
    waves: list[Wave]
    batch: RolloutBatch  # of all updates
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
        return sorted(chain.from_iterable(wave.positions for wave in self.waves))

    def weigh(self, settings: ObjectiveSettings, scores: Tensor, rollouts: Positions | Tensor) -> WeighedLoss:
        """Loss and weights of these rollouts, which are whole groups, with the update's denominator."""
        table, whole = self.batch.select(rollouts), self.denominator(settings)
        return score_weights(settings, scores[rollouts], table, whole, self.training_progress)

    def denominator(self, settings: ObjectiveSettings) -> int:
        return settings.denominator(self.num_groups, self.num_rollouts)


@dataclass(frozen=True)
class Plan:
    """All that ranks need of a rollout batch beside their rollouts; the same for every rank."""

    updates: list[PlannedUpdate]
    metrics: dict[str, float]

    def held(self, rank: int) -> Positions:
        """The rollouts that the rank trains, or if there are none the shortest one, for its dummy forwards."""
        waves = [wave.ranks[rank] for update in self.updates for wave in update.waves]
        rollouts = sorted(chain.from_iterable(chain.from_iterable(waves)))
        return rollouts or [Position(int(self.updates[0].batch.total_lengths.argmin()))]


def plan_rollouts(batch: RolloutBatch, rules: PlanRules, rollout_step: int = 0) -> Plan:
    """Split groups into updates, updates into waves, waves into ranks and micro-batches, from the arguments alone.

    Updates are made of all rollouts, so leaving some out does not change them; waves hold only those that are trained.
    """
    trained = {*batch.trained}
    packing = Packing(batch.total_lengths.tolist(), rules.num_ranks, rules.size, rules.max_tokens)
    chosen = updates_of_groups(batch.groups.tolist(), rules.groups_per_update, rules.seed, rollout_step)
    trained_groups = [[[position for position in group if position in trained] for group in part] for part in chosen]
    members = [[group for group in part if group] for part in trained_groups]
    updates = []
    for number, waves in enumerate(_in_waves(members, packing, rules)):
        on_policy = rules.by_scores and number == 0
        rollouts = sorted(chain.from_iterable(chosen[number]))
        own = batch.select(rollouts)
        tokens = int(batch.lengths[[position for wave in waves for position in wave.positions]].sum())
        update = PlannedUpdate(
            rollouts=rollouts,
            waves=waves,
            batch=batch,
            training_progress=TrainingProgress(step=rollout_step + 1, steps=rules.steps),
            on_policy=on_policy,
            scores_known=not rules.by_scores or (on_policy and rules.known_at_old),
            num_groups=len(own.groups.unique()),
            num_rollouts=len(own) if own.has_gradient is None else int(own.has_gradient.sum()),
            action_tokens=max(int(own.lengths.sum()), 1),
            rollouts_with_tokens=int((own.lengths > 0).sum()),
            trained_tokens=tokens,
        )
        updates.append(update)
    return Plan(updates, _metrics(updates, batch))


def _in_waves(members: list[list[Positions]], packing: Packing, rules: PlanRules) -> list[list[Wave]]:
    """The updates in waves; in the first one policy and old policy are equal."""
    if not rules.by_scores:
        return [packing.waves_of_torn_groups(update) for update in members]
    head = [packing.waves_of_torn_groups(members[0])] if rules.known_at_old else []
    rest = members[len(head) :]

    def in_waves(depth: int) -> list[list[Wave]]:
        return [packing.waves(update, depth) for update in rest]

    if rules.depth is not None:
        waves = in_waves(rules.depth)
    else:
        plain = [packing.one_wave(update) for update in rest]
        largest = max((_tokens(held, packing) for wave in plain for rank in wave.ranks for held in rank), default=0)
        fitting = int(min(rules.live_tokens / max(largest, 1), max((wave.depth for wave in plain), default=1)))
        _, waves = shallowest(in_waves, sum(wave.depth for wave in plain), max(fitting, 1), rules.spare)

    def scored_first(wave: Wave) -> bool:
        live = max(sum(_tokens(held, packing) for held in rank) for rank in wave.ranks)
        return rules.score_first or (wave.depth > 1 and live > rules.live_tokens)

    return head + [[replace(wave, score_first=scored_first(wave)) for wave in update] for update in waves]


def _tokens(held: Positions, packing: Packing) -> int:
    """Tokens in a micro-batch's graph; a micro-batch of a fixed number of rollouts is padded to the longest."""
    lengths = [packing.lengths[position] for position in held]
    if packing.size is not None:
        return len(lengths) * max(lengths, default=0)
    return sum(lengths)


def _metrics(updates: list[PlannedUpdate], batch: RolloutBatch) -> dict[str, float]:
    depths = [wave.depth for update in updates for wave in update.waves]
    crc = zlib.crc32(repr([update.rollouts for update in updates]).encode()) >> 8  # 24 bits: exact in a float32 log
    has_gradient = batch.has_gradient
    return {
        "real/max_live_micro_batches": float(max(depths, default=0)),
        "update/rollouts_crc": float(crc),
        "update/frac_nonzero_weight": 1.0 if has_gradient is None else float(has_gradient.double().mean()),
        "update/frac_trained": sum(len(update.trained) for update in updates) / max(len(batch), 1),
    }
