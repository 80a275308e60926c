"""Every rank takes part in the same collectives in the same order: NCCL, which pairs them by order, never hangs."""

import pytest

MIXES = {"kinds": ("uniform", "uniform", "mixed", "uniform"), "group_sizes": (4, 2, 2, 3)}  # updates with nothing
UNEVEN = {**MIXES, "groups_per_step": 1, "micro_batch_size": 1, "skip": True, "entropy_coef": 0.0}
METHODS = {"real": {"loss": "real"}, "ppo": {"loss": "ppo", "deal": "groups"}}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("zero_stage", [2, 3])
def test_collectives_have_one_order_on_all_ranks(start_ranks, random_model, zero_stage, count):
    """From the loading of a model to the hand-over of its weights."""
    ranks, case = start_ranks(count, "zero_jobs"), {"model": random_model, "zero_stage": zero_stage}
    jobs = [("zero_jobs.trained", {**UNEVEN, **method}) for method in METHODS.values()]
    for job, more in [*jobs, ("hand_over_jobs.handed_over", {"bucket_bytes": 400_000, "ipc": True})]:
        first, *others = ranks("collective_order.of", job, **case, **more)
        assert all(order == first for order in others)
        names = {name for name, _, _ in first}
        assert "c10d::allgather_" in names or {"c10d::allreduce_", "c10d::_allgather_base_"} <= names


def test_another_order_is_seen(two_ranks, random_model):
    case = {"model": random_model, "zero_stage": 2, **UNEVEN, **METHODS["real"]}
    first, second = two_ranks("collective_order.of", "zero_jobs.trained", swapped=True, **case)
    assert first != second and first[:-2] == second[:-2] and sorted(first) == sorted(second)
