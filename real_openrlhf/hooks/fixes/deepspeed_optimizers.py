"""DeepSpeed's optimizers: compile fewer, sum gradients in the flagged format, and resume asleep.

DeepSpeed compiles operators at their first use; its AdamW for GPUs would need a minute of nvcc. PyTorch's AdamW does
the same and replaces it in runs whose batching is ours, and where there is no nvcc. Other runs keep the release's, for
the release's numbers. Ours is fused, except for tiny models on a CPU, so that committed runs stay repeatable. The Adam
for offloaded states (--ds.adam_offload) is compiled: it runs on the CPU, so a C++ compiler is enough.
"""

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator
from deepspeed.git_version_info import installed_ops
from deepspeed.ops.adam import cpu_adam, fused_adam
from deepspeed.ops.op_builder import builder
from deepspeed.ops.op_builder.cpu import CPUAdamBuilder
from deepspeed.runtime.zero.utils import ZERO_SUPPORTED_OPTIMIZERS

from real_openrlhf.hooks.fixes.nonfinite_guard import wrap

TINY = 2**24  # parameters; with SmolLM2's 2**27 a fused step takes 0.13 s, a plain one 0.6 s (two cores)
HOST_BUFFER = "_offload_buffer"  # suffix of a state's name, from deepspeed.runtime.zero.offload_states
OF_FLAGS = ("betas", "eps", "weight_decay")  # of a parameter group, beside its learning rate


class AdamW(torch.optim.AdamW):
    """PyTorch's AdamW, constructed with the arguments that DeepSpeed passes to its FusedAdam."""

    def __init__(self, params: Iterable[dict], adam_w_mode: bool = True, **named: Any) -> None:
        groups = list(params)
        numbers = sum(getattr(weight, "ds_numel", weight.numel()) for group in groups for weight in group["params"])
        super().__init__(groups, fused=get_accelerator().device_name() != "cpu" or numbers > TINY, **named)


def builds_adam() -> bool:
    """Whether DeepSpeed's AdamW is built, or can be: by nvcc on a GPU, by g++ on a CPU, in a path that it can link."""
    own = fused_adam.FusedAdamBuilder()
    if installed_ops.get(own.name) or not isinstance(own, builder.CUDAOpBuilder):
        return installed_ops.get(own.name) or (shutil.which("g++") is not None and " " not in sys.prefix)
    with suppress(builder.MissingCUDAException, builder.CUDAMismatchException):
        return bool(builder.assert_no_cuda_mismatch())
    return False


def compile_less(own_batching: bool = True) -> None:
    """Do not compile the shared-memory collective, which only DeepSpeed's inference calls, and the AdamW for GPUs."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    cpu_adam.CPUAdamBuilder = CPUAdamBuilder  # on a GPU machine DeepSpeed's builder would link CUDA, unused
    if (own_batching or not builds_adam()) and AdamW not in ZERO_SUPPORTED_OPTIMIZERS:
        ZERO_SUPPORTED_OPTIMIZERS.append(AdamW)
        deepspeed.ops.adam.FusedAdam = fused_adam.FusedAdam = AdamW
    # DeepSpeed asks NVML, and fails if CUDA_VISIBLE_DEVICES names GPUs by UUID, as some schedulers do
    CUDA_Accelerator.available_memory = lambda self, device=None: torch.cuda.mem_get_info(device)[0]


def accumulate_as_flagged(engine: Any) -> None:
    """Add up micro-batches' gradients in the format that `--ds.grad_accum_dtype` names, under ZeRO-2 too.

    Under ZeRO-2 DeepSpeed before 0.19.8 sums in the weights' format and converts the sum: with bf16 it is 1.5 % off
    after 128 micro-batches. Later versions sum in separate buffers of the right format. ZeRO-3 follows the flag. With
    offloaded Adam ZeRO-2 uses another code path, which stays unchanged.
    """
    optimizer = engine.optimizer
    if hasattr(optimizer, "_use_compact_grad_partition_buffer"):
        return
    if engine.zero_optimization_stage() == 2 and not optimizer.cpu_offload and optimizer.use_separate_grad_accum:

        def converted(tensors_of: Callable, parameters: list, dtype: torch.dtype) -> list[torch.Tensor]:
            """Convert the first micro-batch's tensors: DeepSpeed adds those of later micro-batches to them."""
            return [tensor.to(dtype) for tensor in tensors_of(parameters, dtype)]

        wrap(optimizer, "get_all_grad_tensors", converted)


@contextmanager
def flags_kept(engine: Any) -> Iterator[None]:
    """Load a checkpoint without its learning rate, betas, eps and weight decay: those of this run's flags hold.

    DeepSpeed would put the saved values in their place, and a lower --actor.adam.lr would change nothing.
    """
    optimizer, scheduler = engine.basic_optimizer, engine.lr_scheduler
    own = [{name: group[name] for name in OF_FLAGS if name in group} for group in optimizer.param_groups]
    rates = [*scheduler.base_lrs]
    yield
    scheduler.base_lrs = rates
    factors = [factor(scheduler.last_epoch) for factor in scheduler.lr_lambdas]
    scheduler._last_lr = [rate * factor for rate, factor in zip(rates, factors, strict=True)]
    for group, values, rate in zip(optimizer.param_groups, own, scheduler._last_lr, strict=True):
        group.update(values | {"lr": rate})


def forget_host_buffers(optimizer: Any) -> None:
    """After a resume: drop the host buffers of a sleeping policy's moments; the next sleep makes new ones.

    DeepSpeed keeps the buffers in the optimizer's state, and so in checkpoints. Torch loads a state to its parameter's
    device: the buffers come back on the GPU, and each sleep would copy from the GPU to the GPU.
    """
    for state in optimizer.state.values():
        for name in [name for name in state if str(name).endswith(HOST_BUFFER)]:
            del state[name]
