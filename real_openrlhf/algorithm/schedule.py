"""Which rollout trains in which optimizer step, on which rank, in which micro-batch. Standard library only."""

import random
from collections.abc import Callable, Hashable, Sequence

Positions = list[int]  # of samples in the rollout batch


def schedule(
    lengths: Sequence[int],
    groups: Sequence[Hashable],
    groups_per_step: int,
    num_ranks: int,
    seed: int,
    *,
    rollout_step: int = 0,
    epoch: int = 0,
    tear: bool = True,
) -> list[list[Positions]]:
    """A list of optimizer steps; a step is a list over ranks of sample positions.

    Invariants, asserted by the tests:
    1. every sample is in exactly one step, on one rank, once;
    2. a group is whole inside its step, and with `tear=False` also on its rank;
    3. every step has `groups_per_step` groups, but the last, which keeps what is left: nothing is dropped;
    4. in a step the ranks' numbers of samples (with `tear=False`: of groups) differ by at most one, and among such
       deals tokens are spread evenly; where there are fewer than ranks, some ranks get none (see `micro_batches`);
    5. the result is a function of the arguments alone: same seed, rollout step and epoch, same schedule anywhere.
    """
    if len(lengths) != len(groups):
        raise ValueError(f"{len(lengths)} lengths, but {len(groups)} group ids")
    if groups_per_step < 1 or num_ranks < 1:
        raise ValueError(f"groups_per_step {groups_per_step} and num_ranks {num_ranks} must be at least 1")
    members = _members(range(len(groups)), groups)
    random.Random(f"{seed}/{rollout_step}/{epoch}").shuffle(members)
    steps = []
    for start in range(0, len(members), groups_per_step):
        step = members[start : start + groups_per_step]
        items = [[position] for position in _flat(step)] if tear else step
        ranks = _deal(items, lambda item: sum(lengths[position] for position in item), num_ranks)
        steps.append([_flat(rank) for rank in ranks])
    return steps


def micro_batches(
    step: Sequence[Positions],
    lengths: Sequence[int],
    *,
    size: int | None = None,
    max_tokens: int | None = None,
    whole_groups: Sequence[Hashable] | None = None,
) -> list[list[Positions]]:
    """Cut one step of `schedule` into micro-batches, per rank: at most `size` samples, or `max_tokens` tokens, each.

    With `whole_groups` (every sample's group id) a group stays inside one micro-batch. A sample, or such a group, that
    alone exceeds the token budget is a micro-batch of its own; a whole group above `size` is refused.

    Every rank gets the same number of micro-batches, because ZeRO-3 gathers parameters in every forward. A rank that
    would have fewer splits its heaviest ones; only where there is nothing left to split does it get an empty
    micro-batch `[]`, for which the trainer runs a dummy forward of weight 0.
    """
    if (size is None) == (max_tokens is None):
        raise ValueError("give either size (samples) or max_tokens (tokens)")
    if size is not None and size < 1:
        raise ValueError(f"micro-batch size is {size}: it must be at least 1")

    def tokens(item: Positions) -> int:
        return sum(lengths[position] for position in item)

    weight, limit = (len, size) if size is not None else (tokens, max_tokens)
    packed = []
    for rank in step:
        items = [[position] for position in rank] if whole_groups is None else _members(rank, whole_groups)
        if size is not None and any(len(item) > size for item in items):
            raise ValueError(f"a group of {max(map(len, items))} rollouts does not fit in a micro-batch of {size}")
        packed.append(_first_fit(sorted(items, key=tokens, reverse=True), weight, limit))

    count = max(map(len, packed), default=0)
    for bins in packed:
        while len(bins) < count:
            heaviest = max((b for b in bins if len(b) > 1), key=lambda b: sum(map(tokens, b)), default=None)
            if heaviest is None:
                bins.append([])
            else:
                bins.remove(heaviest)
                bins += _deal(heaviest, tokens, 2)
    return [[_flat(items) for items in bins] for bins in packed]


def _members(positions: Sequence[int], groups: Sequence[Hashable]) -> list[Positions]:
    members: dict[Hashable, Positions] = {}
    for position in positions:
        members.setdefault(groups[position], []).append(position)
    return list(members.values())


def _flat(items: Sequence[Positions]) -> Positions:
    return [position for item in items for position in item]


def _deal(items: Sequence[Positions], weight: Callable[[Positions], int], num_hands: int) -> list[list[Positions]]:
    """Heaviest first to the lightest hand, with hand sizes that differ by at most one."""
    floor, extra = divmod(len(items), num_hands)
    hands: list[list[Positions]] = [[] for _ in range(num_hands)]
    loads = [0] * num_hands
    for item in sorted(items, key=weight, reverse=True):
        open_hands = [i for i, hand in enumerate(hands) if len(hand) < floor + (extra > 0)]
        hand = min(open_hands, key=lambda i: (loads[i], len(hands[i]), i))
        extra -= len(hands[hand]) == floor
        hands[hand].append(item)
        loads[hand] += weight(item)
    return hands


def _first_fit(items: Sequence[Positions], weight: Callable[[Positions], int], limit: int) -> list[list[Positions]]:
    """Each item into the first bin with room; one that is over the limit by itself gets its own bin."""
    bins: list[list[Positions]] = []
    loads: list[int] = []
    for item in items:
        fit = next((i for i, load in enumerate(loads) if load + weight(item) <= limit), None)
        if fit is None:
            bins.append([item])
            loads.append(weight(item))
        else:
            bins[fit].append(item)
            loads[fit] += weight(item)
    return bins
