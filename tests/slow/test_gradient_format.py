"""A gradient that is added to itself 64 times is 64 times as large: in float32 exactly, in bfloat16 it is not."""

import pytest
from every import every

TIMES = 64


@pytest.mark.parametrize("zero_stage, loss", [(3, "real"), pytest.param(2, "real", marks=every), (2, "ppo")])
def test_gradients_are_added_up_in_the_format_that_is_asked_for(one_rank, random_model, tmp_path, zero_stage, loss):
    case = {"model": random_model, "dtype": "bf16", "zero_stage": zero_stage, "loss": loss, "run_dir": str(tmp_path)}

    def gradient(count, **changes):
        return one_rank("repeated_gradient", count=count, **case, **changes)[0]

    expected = TIMES * gradient(1)
    errors = [float((gradient(TIMES, **c) - expected).norm() / expected.norm()) for c in ({"accumulate": "fp32"}, {})]
    assert errors[0] < 1e-5 and errors[1] > 5e-3, errors
