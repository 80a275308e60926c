"""bf16 products on a CPU without instructions for bf16: torch's own take 10 to 60 times fp32's time.

They are computed from fp32 copies and rounded once, as such instructions do.
"""

import functools
import warnings
from typing import Any

import torch

# Rows that a thread multiplies at once: a block that is not full took another kernel, with other last bits. Measured
# with 1 to 139 rows and 1 to 8 threads of an AMD EPYC: from 12 rows on no product differed.
BLOCK, FEW = 4, 64


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
    """(bias,) left, right. Blocks are filled, so that a row's bits do not depend on how many rows are beside it: vLLM
    computes together the responses that are not done yet, and when each began depends on how busy the machine is."""
    *bias, left, right = tensors
    if right.dtype != torch.bfloat16:
        return torchs.call_boxed(keys, *tensors, **named)
    rows, left = left.shape[-2], left.float()
    if rows < FEW and all(one.dim() == 1 for one in bias):
        left = torch.nn.functional.pad(left, (0, 0, 0, -rows % (BLOCK * torch.get_num_threads())))
    done = torchs.call_boxed(keys, *(one.float() for one in bias), left, right.float(), **named)
    return done[..., :rows, :].bfloat16()
