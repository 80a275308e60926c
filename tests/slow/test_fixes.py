"""Parts of DeepSpeed and torch that are replaced at run time (hooks/fixes)."""

import os
import subprocess
import sys

import pytest
from every import every

BESIDE_A_GPU = """
from real_openrlhf.hooks.fixes.deepspeed_optimizers import AdamW, compile_less
import deepspeed
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.adam import cpu_adam, fused_adam
assert get_accelerator().device_name() == "cuda"
compile_less()
assert deepspeed.ops.adam.FusedAdam is fused_adam.FusedAdam is AdamW
builder = cpu_adam.CPUAdamBuilder()
said = [*builder.cxx_args(), *builder.extra_ldflags(), *builder.libraries_args()]
assert "-fopenmp" in said and not any("cu" in word for word in said), said
"""


def test_beside_a_gpu_neither_adam_needs_its_compiler():
    environment = {**os.environ, "DS_ACCELERATOR": "cuda", "CUDA_HOME": "/nowhere"}
    done = subprocess.run([sys.executable, "-c", BESIDE_A_GPU], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_training_compiles_nothing_unless_states_are_offloaded(two_ranks, random_model):
    from real_openrlhf.hooks.fixes.deepspeed_optimizers import AdamW

    for found in two_ranks("optimizer", model=random_model):
        assert found == {"is": f"{AdamW.__module__}.AdamW", "compiled": False}


# A gradient that is added to itself 64 times is 64 times as large: in float32 exactly, in bfloat16 it is not

TIMES = 64


@pytest.mark.parametrize("zero_stage, loss", [(3, "real"), pytest.param(2, "real", marks=every), (2, "ppo")])
def test_gradients_are_added_up_in_the_format_that_is_asked_for(one_rank, random_model, tmp_path, zero_stage, loss):
    case = {"model": random_model, "dtype": "bf16", "zero_stage": zero_stage, "loss": loss, "run_dir": str(tmp_path)}

    def gradient(count, **changes):
        return one_rank("repeated_gradient", count=count, **case, **changes)[0]

    expected = TIMES * gradient(1)
    errors = [float((gradient(TIMES, **c) - expected).norm() / expected.norm()) for c in ({"accumulate": "fp32"}, {})]
    assert errors[0] < 1e-5 and errors[1] > 5e-3, errors
