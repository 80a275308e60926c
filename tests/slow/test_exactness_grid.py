"""The large grid of tests/fast/test_exactness.py: 1, 2 and 4 gloo ranks, groups of 2 to 64, longer rollouts."""

import pytest
import toy_trainer as lab
from hypothesis import HealthCheck, given, settings


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda count: f"{count}-ranks")
def ranks(request, start_ranks):
    return start_ranks(request.param, "toy_trainer")


def grid(examples):
    return settings(
        max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )


@grid(300)
@given(case=lab.cases())
def test_small_groups(ranks, case):
    lab.assert_exact(case, ranks("train", case))


@grid(60)
@given(case=lab.cases(max_group_size=64, max_groups=4, max_length=12))
def test_groups_up_to_64(ranks, case):
    lab.assert_exact(case, ranks("train", case))
