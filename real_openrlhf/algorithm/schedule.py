"""Which rollout trains in which optimizer step, in which wave, on which rank, in which micro-batch.

A *wave* is what the ranks run side by side between two exchanges of scores: some micro-batches a rank that together
hold whole groups, because a group's weights need the scores of all its rollouts and of no other. Its graphs are kept
until the weights are known, so a wave is as shallow as it can be. Standard library only.
"""

import heapq
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from real_openrlhf.algorithm.packing import Limit, Positions, spread

SWAPS = 200  # exchanges of groups between waves that are tried before a wave more is taken
DEALS = 8  # ways to deal groups to waves that are tried before
SWAPPED = 4096  # rollouts of a step up to which they are: beyond, waves are large and balance packs them
SPARE = 1.02  # a deeper wave must save more micro-batches than this share


@dataclass(frozen=True)
class Wave:
    """`ranks[r]` are the micro-batches of rank r, the same number on every rank; an empty one is a dummy forward."""

    ranks: list[list[Positions]]

    @property
    def depth(self) -> int:
        return len(self.ranks[0])

    @property
    def positions(self) -> Positions:
        return sorted(position for rank in self.ranks for micro_batch in rank for position in micro_batch)

    def deepest(self, lengths: Sequence[int]) -> int:
        """Tokens of the rank that has most of them: what its kept graphs are made of."""
        return max(sum(lengths[p] for micro_batch in rank for p in micro_batch) for rank in self.ranks)


def steps_of_groups(
    groups: Sequence[Hashable], groups_per_step: int, seed: int, *, rollout_step: int = 0, epoch: int = 0
) -> list[list[Positions]]:
    """Optimizer steps of whole groups: every rollout once, full steps but the last, which keeps what is left.

    The order is a function of seed, rollout step and epoch alone, so every method trains on the same updates.
    """
    if groups_per_step < 1:
        raise ValueError(f"groups_per_step {groups_per_step} must be at least 1")
    members: dict[Hashable, Positions] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(position)
    shuffled = list(members.values())
    random.Random(f"{seed}/{rollout_step}/{epoch}").shuffle(shuffled)
    return [shuffled[start : start + groups_per_step] for start in range(0, len(shuffled), groups_per_step)]


@dataclass(frozen=True)
class Layout:
    """What micro-batches must obey. `owner[p]`, where given, is the rank that already holds rollout p."""

    lengths: Sequence[int]
    num_ranks: int
    limit: Limit
    owner: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.num_ranks < 1:
            raise ValueError(f"num_ranks {self.num_ranks} must be at least 1")

    def waves(self, step: Sequence[Positions], depth: int) -> list[Wave]:
        """Cut one optimizer step, given as groups, into waves. Invariants, asserted by the tests:

        1. every rollout is in exactly one micro-batch of one rank (its owner's, where it has one);
        2. a group is whole inside its wave;
        3. every rank has the same number of micro-batches in a wave;
        4. a micro-batch holds at most the limit, or one rollout that alone is over the token budget;
        5. a wave is at most `depth` micro-batches deep, unless it is one group that alone needs more;
        6. the result is a function of the arguments alone.
        """
        if depth < 1:
            raise ValueError(f"a wave of depth {depth} trains nothing: use 1 or more")
        common, waves = [], []
        for group in step:
            if self._surely_fits(group, depth) or self.pack(group, depth):
                common.append(group)
            else:
                waves.append(self.whole([group]))
        return [*waves, *self._fewest(common, depth)]

    def whole(self, step: Sequence[Positions]) -> Wave:
        """The step as one wave, however deep: all scores before any gradient."""
        items = [position for group in step for position in group]
        depth = self._least_depth(items)
        while (wave := self.pack(items, depth, least=depth)) is None:
            depth += 1
        return wave

    def torn(self, step: Sequence[Positions]) -> list[Wave]:
        """Micro-batches that need not hold whole groups, one a wave: for scores that are known before any forward."""
        wave = self.whole(step)
        return [Wave([[rank[number]] for rank in wave.ranks]) for number in range(wave.depth)]

    def _surely_fits(self, group: Positions, depth: int) -> bool:
        return self.owner is None and len(group) <= self.num_ranks * depth

    def _least_depth(self, items: Positions) -> int:
        if self.owner is None:
            return max(-(-self.limit.bins(items, self.lengths) // self.num_ranks), 1)
        return max(max((self.limit.bins(own, self.lengths) for own in self._by_owner(items)), default=1), 1)

    def _by_owner(self, items: Positions) -> list[Positions]:
        held: list[Positions] = [[] for _ in range(self.num_ranks)]
        for item in items:
            held[self.owner[item] if self.owner else 0].append(item)
        return held

    def pack(self, items: Positions, depth: int, least: int | None = None) -> Wave | None:
        """The items as one wave, as shallow as they fit; None where they are deeper than allowed."""
        for tried in range(self._least_depth(items) if least is None else least, depth + 1):
            if self.owner is None:
                bins = self.limit.fill(items, self.lengths, self.num_ranks * tried)
                if bins is not None:
                    return Wave(spread(bins, self.lengths, self.num_ranks))
            else:
                filled = (self.limit.fill(own, self.lengths, tried) for own in self._by_owner(items))
                ranks = [rank for rank in filled if rank is not None]
                if len(ranks) == self.num_ranks:
                    return Wave([spread(rank, self.lengths, 1)[0] for rank in ranks])
        return None

    def _fewest(self, groups: list[Positions], depth: int) -> list[Wave]:
        """As few micro-batches as we find: groups dealt to waves by room, then swapped between them until all fit."""
        items = [position for group in groups for position in group]
        count = self._least_depth(items) if items else 0
        while count < len(groups) * depth:
            depths = [depth] * (count // depth) + [count % depth] * (count % depth > 0)
            for deal in range(DEALS if len(items) <= SWAPPED else 1):
                parts = Parts(self, depths, self._dealt(groups, depths, deal))
                if parts.settle(SWAPS if len(items) <= SWAPPED else 0):
                    return [wave for wave in parts.waves if wave and wave.positions]
            count += max(1, count // 32)
        return [self.whole([group]) for group in groups]

    def _dealt(self, groups: list[Positions], depths: Sequence[int], deal: int = 0) -> list[list[Positions]]:
        """Heaviest group first to the wave that is emptiest for its depth; another `deal` is a little out of order."""
        parts: list[list[Positions]] = [[] for _ in depths]
        emptiest = [(0.0, 0.0, number) for number in range(len(depths))]
        blur = random.Random(deal)
        for group in sorted(groups, key=lambda group: -self.tokens(group) * blur.uniform(1, 1 + deal / DEALS)):
            rollouts, tokens, number = emptiest[0]
            parts[number].append(group)
            counted = len(group) if self.limit.size is not None else 0
            loads = (rollouts + counted / depths[number], tokens + self.tokens(group) / depths[number], number)
            heapq.heapreplace(emptiest, loads)
        return parts

    def tokens(self, items: Positions) -> int:
        return sum(self.lengths[position] for position in items)


class Parts:
    """Groups dealt to waves of given depths, some of which may not fit yet."""

    def __init__(self, layout: Layout, depths: Sequence[int], parts: list[list[Positions]]) -> None:
        self.layout, self.depths, self.parts = layout, depths, parts
        self.waves = [self._packed(number, part) for number, part in enumerate(parts)]

    def _packed(self, number: int, part: list[Positions]) -> Wave | None:
        return self.layout.pack([position for group in part for position in group], self.depths[number])

    def settle(self, swaps: int) -> bool:
        """Move or swap groups of a wave that does not fit, until all fit or no tries are left."""
        tries = iter(range(swaps))
        while None in self.waves:
            if not self._mend(self.waves.index(None), tries):
                return False
        return True

    def _mend(self, broken: int, tries: Iterator[int]) -> bool:
        for other, mine, theirs in self._exchanges(broken):
            if next(tries, None) is None:
                return False
            ours = [group for group in self.parts[broken] if group is not mine] + ([theirs] if theirs else [])
            rest = [group for group in self.parts[other] if group is not theirs] + [mine]
            if (one := self._packed(broken, ours)) and (two := self._packed(other, rest)):
                self.parts[broken], self.parts[other] = ours, rest
                self.waves[broken], self.waves[other] = one, two
                return True
        return False

    def _exchanges(self, broken: int) -> Iterator[tuple[int, Positions, Positions | None]]:
        """(another wave, a group for it, one of its own in return): moves first, then swaps of similar groups."""
        tokens = self.layout.tokens
        others = [number for number, wave in enumerate(self.waves) if wave]
        others.sort(key=lambda number: sum(map(tokens, self.parts[number])) / self.depths[number])
        lightest_first = sorted(self.parts[broken], key=tokens)
        yield from ((other, mine, None) for other in others for mine in lightest_first)
        swaps = [
            (tokens(mine) - tokens(theirs), other, mine, theirs)
            for other in others
            for mine in lightest_first
            for theirs in self.parts[other]
            if tokens(mine) > tokens(theirs)
        ]
        yield from (swap[1:] for swap in sorted(swaps, key=lambda swap: swap[:2]))


def shallowest(plan: Callable[[int], list[list[Wave]]], plain: int, most: int) -> tuple[int, list[list[Wave]]]:
    """(depth, steps): the smallest depth up to `most` that needs about as few micro-batches as packing without waves.

    `plain` counts these. Where none does, the depth that needs fewest.
    """
    found: list[tuple[int, int, list[list[Wave]]]] = []
    depth = 1
    while depth <= most:
        steps = plan(depth)
        found.append((sum(wave.depth for step in steps for wave in step), depth, steps))
        if found[-1][0] <= SPARE * plain:
            break
        depth *= 2
    _, depth, steps = min(found, key=lambda one: one[:2])
    return depth, steps
