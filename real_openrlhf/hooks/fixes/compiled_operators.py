"""DeepSpeed compiles operators at their first use: as little as training needs.

Its AdamW for GPUs would be compiled by nvcc for a minute. PyTorch's does the same and takes its place, fused but for
tiny models on a CPU, so that committed runs can be made again. Only the one for offloaded states is compiled
(--ds.adam_offload): it runs on the CPU, so a C++ compiler is enough for it.
"""

from collections.abc import Iterable
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.adam import cpu_adam, fused_adam
from deepspeed.ops.op_builder.cpu import CPUAdamBuilder
from deepspeed.ops.op_builder.cpu.builder import CPUOpBuilder
from deepspeed.runtime.zero.utils import ZERO_SUPPORTED_OPTIMIZERS

TINY = 2**24  # parameters; of SmolLM2's 2**27 a fused step takes 0.13 s, a plain one 0.6 s (two cores)

_arguments = CPUOpBuilder.cxx_args


class AdamW(torch.optim.AdamW):
    """PyTorch's, made as DeepSpeed makes its own."""

    def __init__(self, params: Iterable[dict], adam_w_mode: bool = True, **settings: Any) -> None:
        if not adam_w_mode:
            raise ValueError("this is AdamW: OpenRLHF asks for nothing else")
        groups = list(params)
        numbers = sum(getattr(one, "ds_numel", one.numel()) for group in groups for one in group["params"])
        super().__init__(groups, fused=get_accelerator().device_name() != "cpu" or numbers > TINY, **settings)


def compile_less() -> None:
    """No collective over shared memory, which only DeepSpeed's inference calls, no AdamW that PyTorch has, and no
    debugging symbols."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    CPUOpBuilder.cxx_args = lambda self: [word for word in _arguments(self) if word != "-g"]
    cpu_adam.CPUAdamBuilder = CPUAdamBuilder  # beside a GPU DeepSpeed links CUDA to it, which it does not use
    if AdamW not in ZERO_SUPPORTED_OPTIMIZERS:
        ZERO_SUPPORTED_OPTIMIZERS.append(AdamW)
        deepspeed.ops.adam.FusedAdam = fused_adam.FusedAdam = AdamW
