"""Weights go to vLLM in buckets: the same ones, by fewer calls."""

import contextlib

import pytest
import torch

from real_openrlhf.hooks.engine import weight_buckets

LAYER = 400_000  # bytes: a few tensors of the tiny model


@pytest.mark.parametrize("ipc", [False, True])
@pytest.mark.parametrize("stage", [2, 3])
def test_vllm_has_every_weight_after_fewer_calls(two_ranks, random_model, stage, ipc):
    counts = []
    for limit in (0, LAYER, 1 << 30):  # one by one, some at once, all at once
        found = two_ranks(
            "hand_over_jobs.handed_over", bucket_bytes=limit, ipc=ipc, model=random_model, zero_stage=stage
        )
        assert found[0]["right"]
        assert [one["gathers"] for one in found] == [found[0]["calls"] * ipc] * 2 and found[1]["calls"] == 0
        counts.append(found[0]["calls"])
    assert counts[0] == found[0]["tensors"] > counts[1] > counts[2] == 1


def test_a_bucket_has_one_number_format_and_at_most_its_bytes(monkeypatch):
    monkeypatch.setattr(weight_buckets, "BUCKET_BYTES", 40)
    weights = [(name, torch.randn(size)) for name, size in (("a", (3, 2)), ("b", (4,)), ("c", (100,)), ("d", (1,)))]
    weights.insert(2, ("half", torch.randn(2).half()))
    entered = []
    buckets = weight_buckets.Buckets(weights, lambda one: contextlib.nullcontext(entered.append(one)))
    found = [(str(parts), parts.split(flat)) for parts, flat in buckets]
    assert [[name for name, _ in one] for _, one in found] == [["a", "b"], ["half"], ["c"], ["d"]]
    assert len(buckets) == 4 and found[0][0] == "a and 1 more"
    for (name, one), (expected, weight) in zip((pair for _, part in found for pair in part), weights, strict=True):
        assert name == expected and one.equal(weight) and one.dtype == weight.dtype
    assert all(one is weight for one, (_, weight) in zip(entered, weights, strict=True))
