"""What DeepSpeed compiles."""

import os
import subprocess
import sys

BESIDE_A_GPU = """
from real_openrlhf.hooks.fixes.compiled_operators import AdamW, compile_less
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
    from real_openrlhf.hooks.fixes.compiled_operators import AdamW

    for found in two_ranks("optimizer", model=random_model):
        assert found == {"is": f"{AdamW.__module__}.AdamW", "compiled": False}
