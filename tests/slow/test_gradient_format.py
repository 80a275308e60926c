"""A gradient that is added to itself 64 times is 64 times as large: in float32 exactly, in bfloat16 it is not."""

import pytest

TIMES = 64


@pytest.mark.parametrize("loss", ["real", "ppo"])
@pytest.mark.parametrize("zero_stage", [3, 2])
def test_gradients_are_added_up_in_the_format_that_is_asked_for(one_rank, random_model, tmp_path, zero_stage, loss):
    case = {"model": random_model, "dtype": "bf16", "zero_stage": zero_stage, "loss": loss, "run_dir": str(tmp_path)}
    (exact,) = one_rank("repeated_gradient", count=TIMES, accumulate="fp32", **case)
    (rounded,) = one_rank("repeated_gradient", count=TIMES, **case)
    assert exact < 1e-5 and rounded > 1e-2
