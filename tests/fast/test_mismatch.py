"""The gap between sampler and policy by hand, and what is said of it."""

import math
from types import SimpleNamespace

import pytest
import torch

from real_openrlhf.algorithm.metrics import MISMATCH_METRICS, gaps, mismatch_metrics, rollout_gaps
from real_openrlhf.hooks.actor.mismatch import Mismatch, MismatchError

POLICY = torch.tensor([[-1.0, -2.0, math.nan], [-0.5, -0.5, -0.5], [math.nan] * 3])
SAMPLER = torch.tensor([[-1.5, -1.75, 0.0], [-0.5, -0.5, -3.5], [0.0] * 3])
MASK = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0]])


def test_by_hand():
    """Gaps of vLLM over the policy: -0.5 and 0.25; 0, 0 and -3; none. What was not sampled says nothing."""
    assert rollout_gaps(POLICY, SAMPLER, MASK).tolist() == pytest.approx([0.375, 1.0, 0.0])
    found = mismatch_metrics(*gaps(POLICY, SAMPLER, MASK))
    expected = {"mean": 3.75 / 5, "max": 3.0, "kl": -3.25 / 5, "rollout_max": 1.0}
    assert found == pytest.approx({f"mismatch/{name}": value for name, value in expected.items()})
    assert list(found) == list(MISMATCH_METRICS)


def test_micro_batches_add_up():
    sums, largest = torch.zeros(3), torch.zeros(2)
    for row in range(3):
        one, maxima = gaps(POLICY[row : row + 1], SAMPLER[row : row + 1], MASK[row : row + 1])
        sums, largest = sums + one, torch.maximum(largest, maxima)
    assert mismatch_metrics(sums, largest) == pytest.approx(mismatch_metrics(*gaps(POLICY, SAMPLER, MASK)))
    assert set(mismatch_metrics(torch.zeros(3), torch.zeros(2)).values()) == {0.0}


def judge(*means: float, mode="stop", temperature=1.0, top_p=1.0) -> list[str]:
    said: list[str] = []
    args = SimpleNamespace(rollout=SimpleNamespace(mismatch=mode, temperature=temperature, top_p=top_p))
    watch = Mismatch(args, said.append)
    for step, mean in enumerate(means, start=1):
        watch.metrics(torch.tensor([10.0, 10 * mean, 0.0]), torch.tensor([mean, mean]), step)
    return said


def test_rounding_is_silent_more_is_told_again_when_it_has_doubled():
    assert judge(0.005, 0.06) == []
    assert len(judge(0.07, 0.08, 0.139)) == 1
    (first, second) = judge(0.07, 0.13, 0.15)
    assert "differ by 0.07 on average in optimizer step 1; above 0.062 it is more than rounding" in first
    assert "step 3" in second


def test_unrelated_models_stop_the_run_unless_it_is_asked_to_go_on():
    with pytest.raises(MismatchError, match="unrelated in optimizer step 2: .* differ by 0.6 on average"):
        judge(0.005, 0.6)
    with pytest.raises(MismatchError):
        judge(math.nan)
    assert len(judge(0.6, mode="log")) == 1


def test_temperature_and_top_p_widen_what_is_allowed():
    assert judge(0.1, temperature=0.6) == [] and judge(0.1, top_p=0.95) == []
    assert len(judge(0.6, temperature=0.6)) == 1
