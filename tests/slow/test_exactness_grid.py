"""The large grid of tests/fast/test_exactness.py: 1, 2 and 4 gloo ranks, groups of 2 to 64, longer rollouts."""

import pytest
import toy_trainer as lab
from every import EVERY
from hypothesis import HealthCheck, given, settings

EXAMPLES = {1: 200, 2: 100, 4: 40} if EVERY else {1: 50, 2: 30, 4: 15}  # of small groups


@pytest.mark.parametrize("count", EXAMPLES)
@pytest.mark.parametrize(
    "cases, share",
    [(lab.cases(), 1.0), (lab.cases(max_group_size=64, max_groups=4, max_length=12), 0.2)],
    ids=["small groups", "groups up to 64"],
)
def test_any_layout_trains_the_papers_loss(start_ranks, cases, share, count):
    ranks = start_ranks(count, "toy_trainer")

    @settings(
        max_examples=int(share * EXAMPLES[count]),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(case=cases)
    def every(case):
        lab.assert_exact(case, ranks("train", case))

    every()
