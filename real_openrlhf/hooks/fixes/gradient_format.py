"""Gradients of micro-batches are added up in the format that `--ds.grad_accum_dtype` names, under ZeRO-2 too."""

from collections.abc import Callable
from typing import Any

import torch

from real_openrlhf.hooks.fixes.nonfinite_guard import wrap


def accumulate_as_flagged(engine: Any) -> None:
    """DeepSpeed before 0.19.8 adds up in the weights' format under ZeRO-2, and converts the sum: 1.5 % off after 128
    in bf16. Later ones add up in buffers of their own, in the right format.

    ZeRO-3 does as it is told; with Adam on the host ZeRO-2 has another way, which is left as it is.
    """
    optimizer = engine.optimizer
    if hasattr(optimizer, "_use_compact_grad_partition_buffer"):
        return
    if engine.zero_optimization_stage() == 2 and not optimizer.cpu_offload and optimizer.use_separate_grad_accum:
        wrap(optimizer, "get_all_grad_tensors", converted)


def converted(tensors_of: Callable, parameters: list, dtype: torch.dtype) -> list[torch.Tensor]:
    """DeepSpeed keeps these tensors of the first micro-batch, and adds the others to them."""
    return [tensor.to(dtype) for tensor in tensors_of(parameters, dtype)]
