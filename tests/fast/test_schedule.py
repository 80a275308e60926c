"""Which rollout trains where: the invariants in schedule.py, over random packings, and how well it packs."""

import math
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from real_openrlhf.algorithm.schedule import Packing, shallowest, updates_of_groups

quick = settings(max_examples=150, deadline=None, derandomize=True, database=None)


@st.composite
def batches(draw):
    """Groups of uneven size, in any order, with any kind of id."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    order = draw(st.permutations([group for group, size in enumerate(sizes) for _ in range(size)]))
    name = draw(st.sampled_from([int, str, lambda group: -1000 * group]))
    return [draw(st.integers(0, 50)) for _ in order], [name(group) for group in order]


@st.composite
def packings(draw):
    lengths, groups = draw(batches())
    sizes, tokens = st.tuples(st.integers(1, 12), st.none()), st.tuples(st.none(), st.integers(1, 120))
    limit, ranks = draw(sizes | tokens), draw(st.integers(1, 9))
    return Packing(lengths, ranks, *limit), groups, draw(st.integers(1, 14)), draw(st.integers(1, 5))


# Steps.


@quick
@given(batches(), st.integers(1, 14), st.integers(0, 3))
def test_steps_hold_whole_groups_and_drop_nothing(batch, per_step, seed):
    _, groups = batch
    steps = updates_of_groups(groups, per_step, seed)
    assert sorted(p for step in steps for group in step for p in group) == list(range(len(groups)))
    for step in steps:
        assert all({groups[p] for p in group} == {groups[group[0]]} for group in step)
    assert all(len(step) == per_step for step in steps[:-1]) and 0 < len(steps[-1]) <= per_step


def test_seed_and_step_each_change_the_order_and_nothing_else_does():
    groups = [str(i // 4) for i in range(64)]
    plans = {str(updates_of_groups(groups, 4, seed, step)) for seed in range(3) for step in range(3)}
    assert len(plans) == 9
    script = (
        "from real_openrlhf.algorithm.schedule import updates_of_groups; "
        "print(updates_of_groups([str(i // 4) for i in range(64)], 4, 2, 2))"
    )
    python = [sys.executable, "-c", script]  # strings hash differently in every process
    there = subprocess.run(python, env={"PYTHONHASHSEED": "1"}, capture_output=True, text=True)
    assert there.stdout.strip() == str(updates_of_groups(groups, 4, 2, 2))


# Waves.


def assert_sound(packing: Packing, step, waves) -> None:
    """Invariants 1, 3 and 4 of `Packing.waves`."""
    lengths = packing.lengths
    found = [p for wave in waves for held in wave.ranks for batch in held for p in batch]
    assert sorted(found) == sorted(p for group in step for p in group)
    for wave in waves:
        assert len(wave.ranks) == packing.num_ranks
        assert {len(held) for held in wave.ranks} == {wave.depth}
        for batch in (batch for held in wave.ranks for batch in held):
            if packing.size is not None:
                assert len(batch) <= packing.size
            else:
                assert sum(lengths[p] for p in batch) <= packing.max_tokens or len(batch) == 1


@quick
@given(packings())
def test_invariants_of_waves(case):
    packing, groups, per_step, depth = case
    for step in updates_of_groups(groups, per_step, 0):
        waves = packing.waves(step, depth)
        assert_sound(packing, step, waves)
        homes = {p: number for number, wave in enumerate(waves) for p in wave.positions}
        assert all(len({homes[p] for p in group}) == 1 for group in step)  # 2. whole groups
        for wave in waves:
            alone = len({groups[p] for p in wave.positions}) == 1
            assert wave.depth <= depth or alone  # 5.
            if wave.depth > depth:  # and that group needs it: one micro-batch less a rank does not do
                assert packing.pack(wave.positions, wave.depth - 1) is None
        assert packing.waves(step, depth) == waves  # 7.


@quick
@given(packings())
def test_a_whole_step_and_torn_groups_obey_the_limits_too(case):
    packing, groups, per_step, _ = case
    for step in updates_of_groups(groups, per_step, 0):
        assert_sound(packing, step, [packing.one_wave(step)])
        torn = packing.waves_of_torn_groups(step)
        assert_sound(packing, step, torn)
        assert {wave.depth for wave in torn} == {1}


def test_waves_of_small_packings_are_those_by_hand():
    # two halves of a budget share a micro-batch, and what ranks do side by side is about as long
    assert Packing([5, 5], 1, max_tokens=10).one_wave([[0, 1]]).ranks == [[[0, 1]]]
    assert {held[0][0] for held in Packing([1, 9, 8, 2], 2, size=1).one_wave([[0, 1, 2, 3]]).ranks} == {1, 2}


def lognormal(count: int, seed: int) -> list[int]:
    draw = random.Random(seed)
    return [min(9216, 200 + int(draw.lognormvariate(math.log(2500), 0.7))) for _ in range(count)]


# Micro-batches a rank against packing without waves, ten steps of 32 groups of 8.
@pytest.mark.parametrize(("depth", "budget", "most"), [(1, 9216, 1.09), (4, 18432, 1.02), (2, 36864, 1.01)])
def test_waves_cost_few_micro_batches_more(depth, budget, most):
    needed = plain = 0
    step = [list(range(8 * group, 8 * group + 8)) for group in range(32)]
    for seed in range(10):
        lengths = lognormal(256, seed)
        packing = Packing(lengths, 8, max_tokens=budget)
        needed += sum(wave.depth for wave in packing.waves(step, depth))
        whole = packing.one_wave(step).depth
        plain += whole
        assert budget == 9216 or whole <= -(-sum(lengths) // (8 * budget)) + 1  # the longest response is 9216
    assert needed <= most * plain


def test_ranks_are_balanced_in_every_wave_that_is_not_tight():
    lengths = [200 + (7919 * i * i) % 7993 for i in range(1024)]
    for step in updates_of_groups([i // 8 for i in range(1024)], 32, 0):
        (wave,) = Packing(lengths, 8, size=32).waves(step, 1)
        tokens = [sum(lengths[p] for batch in held for p in batch) for held in wave.ranks]
        assert max(tokens) <= 1.02 * sum(tokens) / 8


# The depth.


@pytest.mark.parametrize(
    ("costs", "plain", "most", "depth"),
    [
        ({1: 10, 2: 10}, 10, 8, 1),  # nothing to gain
        ({1: 12, 2: 10, 4: 10}, 10, 8, 2),  # the smallest that packs as well
        ({1: 12, 2: 11, 4: 10}, 10, 2, 2),  # as deep as memory allows
        ({1: 12, 2: 12, 4: 12}, 10, 4, 1),  # deeper saves nothing
        ({1: 12}, 10, 1, 1),
        ({1: 102, 2: 100}, 100, 8, 1),  # two per cent more are not worth a graph
    ],
)
def test_the_depth_is_the_smallest_that_packs_about_as_well_as_no_waves(costs, plain, most, depth):
    chosen, waves = shallowest(lambda tried: [[SimpleNamespace(depth=costs[tried])]], plain, most)
    assert (chosen, waves[0][0].depth) == (depth, costs[depth])
