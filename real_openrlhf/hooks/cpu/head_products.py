"""bf16 products with a vocabulary on a CPU without instructions for bf16: torch's own take up to 60 times fp32's time.

They are computed from fp32 copies and rounded once, as such instructions do. Other products stay torch's.
"""

import functools
import warnings
from typing import Any

import torch

WORDS = 2**14  # rows or columns from which on a matrix is taken for a vocabulary's


def slow() -> bool:
    return not torch.ops.mkldnn._is_mkldnn_bf16_supported()


@functools.cache  # which keeps the library: torch's kernels are back once it is freed
def widen() -> torch.library.Library | None:
    if not slow():
        return None
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of every kernel that is replaced
        for name in ("mm", "addmm"):
            ours = functools.partial(product, torch.library.get_kernel(f"aten::{name}", "CPU"))
            library.impl(name, ours, "CPU", with_keyset=True, allow_override=True)
    return library


def product(torchs: Any, keys: Any, *tensors: torch.Tensor, **named: Any) -> torch.Tensor:
    """(bias,) left, right"""
    sizes = (*tensors[-2].shape, tensors[-1].shape[1])
    if tensors[-1].dtype != torch.bfloat16 or max(sizes) < WORDS:
        return torchs.call_boxed(keys, *tensors, **named)
    return torchs.call_boxed(keys, *(tensor.float() for tensor in tensors), **named).bfloat16()
