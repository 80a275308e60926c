"""What DeepSpeed compiles on CPU when a run first needs it: as little as training takes."""

import deepspeed
from deepspeed.ops.op_builder.cpu.builder import CPUOpBuilder

_arguments = CPUOpBuilder.cxx_args


def compile_less() -> None:
    """No collective over shared memory, which only DeepSpeed's inference calls, and no debugging symbols."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    CPUOpBuilder.cxx_args = lambda self: [word for word in _arguments(self) if word != "-g"]
