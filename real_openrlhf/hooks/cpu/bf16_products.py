"""bf16 products on a CPU without instructions for bf16: torch's own take 10 to 60 times fp32's time.

They are computed from fp32 copies and rounded once, as such instructions do.
"""

import functools
import warnings
from typing import Any

import torch


def slow() -> bool:
    return not torch.ops.mkldnn._is_mkldnn_bf16_supported()


@functools.cache  # which keeps the library: torch's kernels are back once it is freed
def widen() -> torch.library.Library | None:
    if not slow():
        return None
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of every kernel that is replaced
        for name in ("mm", "addmm", "bmm"):
            ours = functools.partial(product, torch.library.get_kernel(f"aten::{name}", "CPU"))
            library.impl(name, ours, "CPU", with_keyset=True, allow_override=True)
    return library


def product(torchs: Any, keys: Any, *tensors: torch.Tensor, **named: Any) -> torch.Tensor:
    """(bias,) left, right"""
    if tensors[-1].dtype != torch.bfloat16:
        return torchs.call_boxed(keys, *tensors, **named)
    return torchs.call_boxed(keys, *(tensor.float() for tensor in tensors), **named).bfloat16()
