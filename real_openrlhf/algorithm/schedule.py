"""Assign each rollout to an update, a wave, a rank and a micro-batch.

A *wave* is the set of micro-batches that all ranks run between two exchanges of scores. It holds whole groups, because
a group's weights need the scores of all its rollouts and of no other. Ranks keep the graphs of a wave until they know
its weights, so its depth (micro-batches per rank) is as small as possible. Standard library only.
"""

import bisect
import heapq
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NewType, TypeVar

Position = NewType("Position", int)  # of a rollout in its rollout batch
Positions = list[Position]
Item = TypeVar("Item", bound=int)  # a number that has a length

SPARE = 1.02  # waves get no deeper once they need at most this times the micro-batches of packing without waves
SPARE_ZERO_3 = 1.10  # under ZeRO-3 a deeper wave gathers weights without prefetch in backward: 3 to 4 % of an update
BEST_FIT = 2048  # rollouts; larger updates do not try best fit, because large waves of even load pack as well


@dataclass(frozen=True)
class Wave:
    """`ranks[r]` are the micro-batches of rank r, the same number on every rank; an empty one is a dummy forward."""

    ranks: list[list[Positions]]
    score_first: bool = False  # a forward without gradient computes the scores first, and no graphs are kept

    @property
    def depth(self) -> int:
        return len(self.ranks[0])

    @property
    def positions(self) -> Positions:
        return sorted(chain.from_iterable(chain.from_iterable(self.ranks)))


def updates_of_groups(
    groups: Sequence[Hashable], groups_per_update: int, seed: int, rollout_step: int = 0
) -> list[list[Positions]]:
    """Updates of whole groups: every rollout once, updates of equal size, the last one maybe smaller.

    The order is a function of seed and rollout step alone, so every method trains on the same updates.
    """
    members: dict[Hashable, Positions] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(Position(position))
    shuffled = list(members.values())
    random.Random(f"{seed}/{rollout_step}/0").shuffle(shuffled)
    return [shuffled[start : start + groups_per_update] for start in range(0, len(shuffled), groups_per_update)]


@dataclass(frozen=True)
class Packing:
    """The rules for micro-batches: the limit of one is either `size` rollouts or `max_tokens` tokens."""

    lengths: Sequence[int]
    num_ranks: int
    size: int | None = None
    max_tokens: int | None = None

    def bins(self, items: Sequence[int]) -> int:
        """A lower bound for the number of micro-batches that hold the items."""
        if self.max_tokens is None:
            return -(-len(items) // (self.size or 1))
        large = sum(2 * self.lengths[item] > self.max_tokens for item in items)  # no two of them share a bin
        return max(-(-self.tokens(items) // self.max_tokens), large)

    def fill(self, items: Sequence[Item], bins: int) -> list[list[Item]] | None:
        """Pack the items into at most `bins` bins, with balanced loads if they fit; None if they do not fit at all.

        An item that alone is over the token budget has a bin of its own.
        """
        if self.max_tokens is not None and self.bins(items) > bins:
            return None
        heaviest_first = sorted(items, key=lambda item: -self.lengths[item])
        filled = self._balanced(heaviest_first, bins)
        if filled is None and self.max_tokens is not None:
            return _best_fit(heaviest_first, self.lengths, bins, self.max_tokens)
        return filled

    def _balanced(self, items: list[Item], bins: int) -> list[list[Item]] | None:
        """Put each item into the lightest bin; None if it does not fit there."""
        held: list[list[Item]] = [[] for _ in range(bins)]
        lightest = [(0, number) for number in range(bins)]
        for item in items:
            if not lightest:
                return None
            load, number = lightest[0]
            if self.max_tokens is not None and load and load + self.lengths[item] > self.max_tokens:
                return None
            held[number].append(item)
            if len(held[number]) == self.size:
                heapq.heappop(lightest)
            else:
                heapq.heapreplace(lightest, (load + self.lengths[item], number))
        return held

    def waves(self, update: Sequence[Positions], depth: int) -> list[Wave]:
        """Cut one update, given as groups, into waves. Invariants, asserted by the tests:

        1. every rollout is in exactly one micro-batch of one rank;
        2. a group is whole inside its wave;
        3. every rank has the same number of micro-batches in a wave;
        4. a micro-batch holds at most the limit, or one rollout that alone is over the token budget;
        5. a wave is at most `depth` micro-batches deep, unless it is one group that alone needs more;
        6. an update without rollouts is one wave of dummies;
        7. the result is a function of the arguments alone.
        """
        common, waves = [], []
        for group in update:
            if len(group) <= self.num_ranks * depth or self.pack(group, depth):  # at most one rollout a micro-batch
                common.append(group)
            else:
                waves.append(self.one_wave([group]))
        return [*waves, *self._fewest(common, depth)] or [self.one_wave([])]

    def one_wave(self, update: Sequence[Positions]) -> Wave:
        """The update as one wave of any depth, so that all scores are known before any gradient."""
        items = _joined(update)
        depth = self._least_depth(items)
        while (wave := self.pack(items, depth, least=depth)) is None:
            depth += 1
        return wave

    def waves_of_torn_groups(self, update: Sequence[Positions]) -> list[Wave]:
        """Waves of one micro-batch a rank that may split groups, for scores that are known before any forward."""
        wave = self.one_wave(update)
        return [Wave([[rank[number]] for rank in wave.ranks]) for number in range(wave.depth)]

    def _least_depth(self, items: Positions) -> int:
        return max(-(-self.bins(items) // self.num_ranks), 1)

    def pack(self, items: Positions, depth: int, least: int | None = None) -> Wave | None:
        """Pack the items into one wave of the smallest depth; None if they need more than `depth`."""
        for tried in range(self._least_depth(items) if least is None else least, depth + 1):
            bins = self.fill(items, self.num_ranks * tried)
            if bins is not None:
                return Wave(spread(bins, self.lengths, self.num_ranks))
        return None

    def _fewest(self, groups: list[Positions], depth: int) -> list[Wave]:
        """Waves with few micro-batches in total: of even load if the groups fit, else by best fit."""
        items = _joined(groups)
        count = self._least_depth(items) if items else 0
        while count < len(groups) * depth:
            depths = [depth] * (count // depth) + [count % depth] * (count % depth > 0)
            parts = zip(self._evenly_loaded(groups, depths), depths, strict=True)
            waves = [self.pack(_joined(part), own_depth) for part, own_depth in parts]
            if None not in waves:
                return [wave for wave in waves if wave and wave.positions]
            if len(items) <= BEST_FIT:
                return self._best_fit(groups, depth)
            count += max(1, count // 32)
        return [self.one_wave([group]) for group in groups]

    def _evenly_loaded(self, groups: list[Positions], depths: Sequence[int]) -> list[list[Positions]]:
        """Give each group, heaviest first, to the wave with the smallest load for its depth."""
        parts: list[list[Positions]] = [[] for _ in depths]
        emptiest = [(0.0, 0.0, number) for number in range(len(depths))]
        for group in self._heaviest_first(groups):
            rollouts, tokens, number = emptiest[0]
            parts[number].append(group)
            counted = len(group) if self.size is not None else 0
            loads = (rollouts + counted / depths[number], tokens + self.tokens(group) / depths[number], number)
            heapq.heapreplace(emptiest, loads)
        return parts

    def _best_fit(self, groups: list[Positions], depth: int) -> list[Wave]:
        """Heaviest group first into the fullest wave that has room for it."""
        waves: list[Wave] = []
        for group in self._heaviest_first(groups):
            waves.sort(key=lambda wave: -self.tokens(wave.positions))
            for number, wave in enumerate(waves):
                if joined := self.pack([*wave.positions, *group], depth):
                    waves[number] = joined
                    break
            else:
                waves.append(self.one_wave([group]))
        return waves

    def _heaviest_first(self, groups: list[Positions]) -> list[Positions]:
        return sorted(groups, key=lambda group: -self.tokens(group))

    def tokens(self, items: Sequence[int]) -> int:
        return sum(self.lengths[item] for item in items)


def _joined(groups: Sequence[Positions]) -> Positions:
    return [*chain.from_iterable(groups)]


def shallowest(
    plan: Callable[[int], list[list[Wave]]], plain: int, most: int, spare: float = SPARE
) -> tuple[int, list[list[Wave]]]:
    """(depth, updates): the smallest depth to `most` that needs about as few micro-batches as packing without waves.

    `plain` is that number without waves. If no depth comes close, take the depth with the fewest micro-batches.
    """
    tried: list[tuple[int, int, list[list[Wave]]]] = []
    depth = 1
    while depth <= most:
        updates = plan(depth)
        tried.append((sum(wave.depth for update in updates for wave in update), depth, updates))
        if tried[-1][0] <= spare * plain:
            break
        depth *= 2
    _, depth, updates = min(tried, key=lambda attempt: attempt[:2])
    return depth, updates


def _best_fit(items: list[Item], lengths: Sequence[int], bins: int, max_tokens: int) -> list[list[Item]] | None:
    """Each item into the fullest bin that has room for it."""
    held: list[list[Item]] = []
    room: list[tuple[int, int]] = []  # ascending (tokens left, bin)
    for item in items:
        at = bisect.bisect_left(room, (lengths[item], -1))
        if at < len(room):
            left, number = room.pop(at)
        elif len(held) < bins:
            left, number = max_tokens, len(held)
            held.append([])
        else:
            return None
        held[number].append(item)
        bisect.insort(room, (left - lengths[item], number))
    return held + [[] for _ in range(bins - len(held))]


def spread(bins: Sequence[Positions], lengths: Sequence[int], hands: int) -> list[list[Positions]]:
    """Distribute bins over `hands`, equally many each, with balanced loads, heaviest bin first in each hand."""
    loads = [sum(lengths[item] for item in held) for held in bins]
    dealt = Packing(loads, hands, size=len(bins) // hands).fill(range(len(bins)), hands) or []
    return [[bins[number] for number in sorted(hand, key=lambda number: (-loads[number], number))] for hand in dealt]
