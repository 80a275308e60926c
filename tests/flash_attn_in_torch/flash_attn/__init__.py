"""flash-attn's interface in plain torch, so that what needs it runs on a machine without a GPU. For tests only."""

import sys
from itertools import pairwise

import torch
import torch.nn.functional as F

__version__ = "2.8.3+torch"

print(f"flash-attn's place is taken by plain torch ({__file__}): for trying GPU paths on CPU", file=sys.stderr)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, **others):
    """(batch, tokens, heads, width), with several query heads a key head."""
    if q.is_cuda or dropout_p or any(value not in (None, False, 0.0, (-1, -1)) for value in others.values()):
        raise NotImplementedError(f"the stand-in for flash-attn: {q.device}, dropout {dropout_p}, {others}")
    shared = q.shape[2] // k.shape[2]
    k, v = (heads.repeat_interleave(shared, dim=2) for heads in (k, v))
    q, k, v = (heads.transpose(1, 2) for heads in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=softmax_scale).transpose(1, 2)


def flash_attn_varlen_func(
    q,
    k,
    v,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    dropout_p=0.0,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    alibi_slopes=None,
    deterministic=False,
    return_attn_probs=False,
    block_table=None,
):
    """Sequences packed one behind another, (tokens, heads, width): each attends to itself alone."""
    ends = cu_seqlens_q.tolist()
    if ends != cu_seqlens_k.tolist() or ends[-1] != len(q):
        raise ValueError(f"{len(q)} packed tokens, sequences that end at {ends[1:]}")
    others = {"window_size": window_size, "softcap": softcap, "alibi_slopes": alibi_slopes, "block_table": block_table}
    parts = [
        flash_attn_func(*(t[None, start:end] for t in (q, k, v)), dropout_p, softmax_scale, causal, **others)[0]
        for start, end in pairwise(ends)
    ]
    return torch.cat(parts)


def flash_attn_with_kvcache(*_, **__):
    raise NotImplementedError("the stand-in for flash-attn does not generate")
