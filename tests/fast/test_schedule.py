"""Which rollout trains where: the invariants in schedule.py's docstrings, over a grid of layouts."""

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from real_openrlhf.algorithm.schedule import micro_batches, schedule

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@st.composite
def layouts(draw):
    """Groups of uneven size, in any order, with any kind of id."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=0, max_size=12))
    order = draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)]))
    name = draw(st.sampled_from([int, str, lambda group: -1000 * group]))
    return {
        "lengths": [draw(st.integers(0, 50)) for _ in order],
        "groups": [name(group) for group in order],
        "groups_per_step": draw(st.integers(1, 14)),
        "num_ranks": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 3)),
        "tear": draw(st.booleans()),
    }


@quick
@given(layouts())
def test_schedule_invariants(layout):
    groups, per_step, ranks = layout["groups"], layout["groups_per_step"], layout["num_ranks"]
    steps = schedule(**layout)
    # 1. every sample once
    assert sorted(p for step in steps for rank in step for p in rank) == list(range(len(groups)))
    # 2. groups are whole inside a step, untorn also on their rank
    for whole_in in [steps] if layout["tear"] else [steps, [[rank] for step in steps for rank in step]]:
        homes = Counter((groups[p], i) for i, step in enumerate(whole_in) for rank in step for p in rank)
        assert all(homes[group, home] == groups.count(group) for group, home in homes)
    # 3. full steps, the rest in the last one, nothing dropped
    counts = [len({groups[p] for rank in step for p in rank}) for step in steps]
    assert all(count == per_step for count in counts[:-1]) and all(0 < count <= per_step for count in counts)
    # 4. ranks differ by one at most
    for step in steps:
        assert len(step) == ranks
        held = [len(rank) if layout["tear"] else len({groups[p] for p in rank}) for rank in step]
        assert max(held) - min(held) <= 1
    # 5. a function of its arguments
    assert schedule(**layout) == steps


def test_seed_step_and_epoch_each_change_the_order_and_nothing_else_does():
    layout = ([10] * 64, [i // 4 for i in range(64)], 4, 2)
    plans = {
        str(schedule(*layout, seed, rollout_step=step, epoch=epoch))
        for seed in range(3)
        for step in range(3)
        for epoch in range(3)
    }
    assert len(plans) == 27
    script = (
        "from real_openrlhf.algorithm.schedule import schedule; "
        "print(schedule([10] * 64, [str(i // 4) for i in range(64)], 4, 2, 7, rollout_step=3, epoch=1))"
    )
    here = str(schedule([10] * 64, [str(i // 4) for i in range(64)], 4, 2, 7, rollout_step=3, epoch=1))
    for hash_seed in ("1", "2"):  # strings hash differently in every process
        done = subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True
        )
        assert done.stdout.strip() == here


def test_ranks_are_balanced_by_length():
    """The paper's step: 32 prompts of 8 rollouts, up to 8,192 tokens, on 8 ranks; within 1 % of the mean."""
    lengths = [200 + (7919 * i * i) % 7993 for i in range(1024)]
    for step in schedule(lengths, [i // 8 for i in range(1024)], 32, 8, 0):
        tokens = [sum(lengths[p] for p in rank) for rank in step]
        assert max(tokens) <= 1.01 * sum(tokens) / 8


@quick
@given(layouts(), st.integers(1, 12), st.integers(1, 120), st.booleans())
def test_micro_batch_invariants(layout, size, max_tokens, by_tokens):
    lengths, groups = layout["lengths"], layout["groups"]
    limit = {"max_tokens": max_tokens} if by_tokens else {"size": size}
    whole = None if layout["tear"] else groups
    assume(by_tokens or layout["tear"] or size >= 9)
    for step in schedule(**layout):
        cut = micro_batches(step, lengths, **limit, whole_groups=whole)
        assert len({len(batches) for batches in cut}) == 1  # the same number of forwards on every rank
        for rank, batches in zip(step, cut, strict=True):
            assert sorted(p for batch in batches for p in batch) == sorted(rank)
            for batch in batches:
                alone = len(batch) == 1 or (whole and len({groups[p] for p in batch}) == 1)
                if by_tokens:
                    assert sum(lengths[p] for p in batch) <= max_tokens or alone
                else:
                    assert len(batch) <= size
            if whole:
                homes = Counter((groups[p], i) for i, batch in enumerate(batches) for p in batch)
                assert all(count == groups.count(group) for (group, _), count in homes.items())
            if [] in batches:  # a dummy only where nothing is left to split
                assert all(len(batch) <= 1 or (whole and len({groups[p] for p in batch}) == 1) for batch in batches)
        # no more micro-batches than the busiest rank needs
        if not by_tokens and layout["tear"]:
            assert len(cut[0]) == max(-(-len(rank) // size) for rank in step)


def test_micro_batches_by_hand():
    lengths = [5, 3, 7, 2, 6]
    assert micro_batches([[0, 1, 2, 3, 4]], lengths, size=2) == [[[2, 4], [0, 1], [3]]]
    assert micro_batches([[0, 1, 2, 3, 4]], lengths, max_tokens=10) == [[[2, 1], [4, 3], [0]]]
    # rank 1 could do with one, but must run two forwards; rank 2 has nothing to split
    assert micro_batches([[0, 2], [3, 1], [4], []], lengths, max_tokens=7) == [
        [[2], [0]],
        [[1], [3]],
        [[4], []],
        [[], []],
    ]
    assert micro_batches([[0, 1, 2, 3]], lengths, size=3, whole_groups="abab?") == [[[0, 2], [1, 3]]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: schedule([1], [0, 1], 1, 1, 0), "1 lengths, but 2 group ids"),
        (lambda: schedule([1], [0], 0, 1, 0), "groups_per_step 0 and num_ranks 1 must be at least 1"),
        (lambda: micro_batches([[0]], [1]), "give either size"),
        (lambda: micro_batches([[0]], [1], size=1, max_tokens=1), "give either size"),
        (lambda: micro_batches([[0]], [1], size=0), "micro-batch size is 0"),
        (lambda: micro_batches([[0, 1]], [1, 1], size=1, whole_groups=[0, 0]), "a group of 2 rollouts does not fit"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_rank_with_the_longest_rollout_still_gets_its_number_of_samples():
    (step,) = schedule([100] + [1] * 8, [0] * 9, 1, 4, 0)
    assert sorted(map(len, step)) == [2, 2, 2, 3]
