"""Bins for rollouts: balanced where that fits, best fit where it must be tight. Standard library only."""

import bisect
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

Positions = list[int]  # of rollouts in the rollout batch


@dataclass(frozen=True)
class Limit:
    """The limit of a micro-batch: either `size` rollouts or `max_tokens` tokens."""

    size: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        most = self.max_tokens if self.size is None else self.size
        if most is None or most < 1:
            raise ValueError(f"a micro-batch of {most} holds nothing: use 1 or more")

    def bins(self, items: Sequence[int], lengths: Sequence[int]) -> int:
        """Fewer bins than this cannot hold the items."""
        if self.max_tokens is None:
            return -(-len(items) // (self.size or 1))
        large = sum(2 * lengths[item] > self.max_tokens for item in items)  # no two of them share a bin
        return max(-(-sum(lengths[item] for item in items) // self.max_tokens), large)

    def fill(self, items: Sequence[int], lengths: Sequence[int], bins: int) -> list[Positions] | None:
        """The items in at most so many bins, lightest loads first tried; None where they do not fit.

        An item that alone is over the token budget has a bin of its own.
        """
        if self.max_tokens is not None and self.bins(items, lengths) > bins:
            return None
        heaviest_first = sorted(items, key=lambda item: -lengths[item])
        found = _balanced(heaviest_first, lengths, bins, self)
        if found is None and self.max_tokens is not None:
            return _best_fit(heaviest_first, lengths, bins, self.max_tokens)
        return found


def _balanced(items: Positions, lengths: Sequence[int], bins: int, limit: Limit) -> list[Positions] | None:
    """Each item to the lightest bin that may take one more."""
    held: list[Positions] = [[] for _ in range(bins)]
    lightest = [(0, number) for number in range(bins)]
    for item in items:
        if not lightest:
            return None
        load, number = lightest[0]
        if limit.max_tokens is not None and load and load + lengths[item] > limit.max_tokens:
            return None
        held[number].append(item)
        if len(held[number]) == limit.size:
            heapq.heappop(lightest)
        else:
            heapq.heapreplace(lightest, (load + lengths[item], number))
    return held


def _best_fit(items: Positions, lengths: Sequence[int], bins: int, max_tokens: int) -> list[Positions] | None:
    """Each item into the fullest bin that has room for it."""
    held: list[Positions] = []
    room: list[tuple[int, int]] = []  # ascending (tokens left, bin)
    for item in items:
        place = bisect.bisect_left(room, (lengths[item], -1))
        if place < len(room):
            left, number = room.pop(place)
        elif len(held) < bins:
            left, number = max_tokens, len(held)
            held.append([])
        else:
            return None
        held[number].append(item)
        bisect.insort(room, (left - lengths[item], number))
    return held + [[] for _ in range(bins - len(held))]


def spread(bins: Sequence[Positions], lengths: Sequence[int], hands: int) -> list[list[Positions]]:
    """Bins dealt to hands, as many to each, similar loads in each place; their number is a multiple of the hands."""
    each = len(bins) // hands
    loads = {number: sum(lengths[item] for item in held) for number, held in enumerate(bins)}
    dealt = Limit(size=each).fill(range(len(bins)), [loads[number] for number in range(len(bins))], hands) or []
    return [[bins[number] for number in sorted(hand, key=lambda number: (-loads[number], number))] for hand in dealt]
