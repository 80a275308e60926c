"""The kernels below torch's varlen_attn, forward and backward, in float64 on CPU; their arguments are checked."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import torch


def dense(q, k, v, bounds, scale, window):
    """(tokens, heads, width) by one table of scores for all tokens, in float64."""
    tokens, heads, width = q.shape
    k, v = (one.repeat_interleave(heads // one.shape[1], 1).double() for one in (k, v))
    sequence = torch.repeat_interleave(torch.arange(len(bounds) - 1), torch.tensor(bounds).diff())
    distance = torch.arange(tokens)[:, None] - torch.arange(tokens)
    seen = (sequence[:, None] == sequence) & (distance >= 0) & (distance < (window or tokens))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * (width**-0.5 if scale is None else scale)
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, -torch.inf).softmax(-1), v)


def checked(q, k, v, ends, others, longest, dropout, is_causal, left, right):
    """What NVIDIA's kernel takes and means by it."""
    tokens, heads, width = q.shape
    assert q.dtype in (torch.bfloat16, torch.float16) and q.dtype == k.dtype == v.dtype
    assert k.shape == v.shape == (tokens, k.shape[1], width) and heads % k.shape[1] == 0
    assert all(one.stride(-1) == 1 for one in (q, k, v)) and width % 8 == 0 and width <= 256
    assert ends.dtype == others.dtype == torch.int32 and ends.is_contiguous() and ends.equal(others)
    bounds = ends.tolist()
    lengths = [end - begin for begin, end in pairwise(bounds)]
    assert bounds[0] == 0 and bounds[-1] == tokens and min(lengths) > 0
    assert isinstance(longest[0], int) and longest == (max(lengths), max(lengths)) and dropout == 0.0
    assert right == 0 and (left == -1 or left >= 0) and is_causal == (left == -1)
    return bounds, None if left == -1 else left + 1


def gradients(q, k, v, bounds, scale, window, grad):
    given = [one.detach().requires_grad_() for one in (q, k, v)]
    return torch.autograd.grad(dense(*given, bounds, scale, window), given, grad.double())


@contextlib.contextmanager
def stand_in():
    """Yields the list of its calls' (bounds, window, scale)."""
    calls = []

    def forward(q, k, v, ends, others, max_q, max_k, dropout, is_causal, debug, *, scale=None, window_size_left=None,
                window_size_right=None, **others_still):  # fmt: skip
        assert not debug and not any(value is not None for value in others_still.values())
        sides = (window_size_left, window_size_right)
        bounds, window = checked(q, k, v, ends, others, (max_q, max_k), dropout, is_causal, *sides)
        calls.append((bounds, window, scale))
        nothing = torch.zeros(2, dtype=torch.uint64)
        result = dense(q, k, v, bounds, scale, window).to(q.dtype)
        return result, q.new_zeros(q.shape[1], len(q), dtype=torch.float), nothing, nothing, q.new_empty(0)

    def backward(grad, q, k, v, out, lse, ends, others, max_q, max_k, dropout, is_causal, rng, unused, *, scale=None,
                 window_size_left=None, window_size_right=None):  # fmt: skip
        sides = (window_size_left, window_size_right)
        bounds, window = checked(q, k, v, ends, others, (max_q, max_k), dropout, is_causal, *sides)
        assert grad.shape == out.shape == q.shape and lse.shape == (q.shape[1], len(q))
        with ThreadPoolExecutor(1) as below:  # here autograd is off, in another thread it is not
            return below.submit(gradients, q, k, v, bounds, scale, window, grad).result()

    library = torch.library.Library("aten", "IMPL", "CPU")
    library.impl("_flash_attention_forward", forward)
    library.impl("_flash_attention_backward", backward)
    try:
        yield calls
    finally:
        library._destroy()
