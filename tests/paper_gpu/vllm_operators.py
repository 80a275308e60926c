"""vLLM's own CUDA operators that a dense model needs, computed as operators.py computes PyTorch's. The others refuse."""

import operators
import torch
from torch.nn import functional as F


def rms_norm(result, x, weight, epsilon):
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    result.copy_(wide.to(x.dtype) if weight is None else wide.to(x.dtype) * weight)


def fused_add_rms_norm(x, residual, weight, epsilon):
    residual.add_(x)
    rms_norm(x, residual, weight, epsilon)


def silu_and_mul(result, x):
    left, right = x.chunk(2, -1)
    result.copy_(F.silu(left) * right)


def gelu_and_mul(result, x, approximate="none"):
    left, right = x.chunk(2, -1)
    result.copy_(F.gelu(left, approximate=approximate) * right)


def rotary_embedding(
    positions, query, key, head_size, cos_sin_cache, is_neox, rope_dim_offset=0, inverse=False
):
    assert is_neox and not rope_dim_offset and not inverse
    cos, sin = cos_sin_cache[positions.flatten()].float().chunk(2, -1)
    for one in (query, key):
        if one is not None:
            heads = one.view(len(cos), -1, head_size)
            part = heads[..., : 2 * cos.shape[-1]]
            left, right = part.float().chunk(2, -1)
            c, s = cos[:, None], sin[:, None]
            part.copy_(torch.cat((left * c - right * s, right * c + left * s), -1))


def reshape_and_cache_flash(key, value, key_cache, value_cache, slots, kind, *_):
    assert kind in ("auto", "bfloat16")
    slots = slots.long()
    kept = slots >= 0
    block, place = slots[kept] // key_cache.shape[1], slots[kept] % key_cache.shape[1]
    for cache, new in ((key_cache, key), (value_cache, value)):
        cache[block, place] = new[: len(slots)][kept]


def attention(q, k, v, out, bounds, used, table, scale, causal, left, softcap):
    """Of packed queries over a paged cache of keys and values; the last query is at the last key."""
    out = torch.empty_like(q) if out is None else out
    ends = bounds.tolist()
    for row, (begin, end) in enumerate(zip(ends, ends[1:])):
        keys = int(used[row])
        if begin == end or not keys:
            continue
        pages = table[row, : -(-keys // k.shape[1])].long()
        times = q.shape[1] // k.shape[2]
        x = q[begin:end].transpose(0, 1).float()
        y, z = (one[pages].flatten(0, 1)[:keys].transpose(0, 1).float().repeat_interleave(times, 0) for one in (k, v))
        logits = x @ y.mT * scale
        if softcap:
            logits = softcap * (logits / softcap).tanh()
        seen = torch.ones(end - begin, keys, dtype=torch.bool)
        if causal:
            seen = seen.tril(keys - (end - begin))
        if left >= 0:
            seen = seen.triu(keys - (end - begin) - left)
        p = logits.masked_fill(~seen, float("-inf")).softmax(-1)
        out[begin:end] = (p @ z).transpose(0, 1).to(out.dtype)
    return out, torch.zeros(q.shape[1], len(q))


def fa2(q, k, v, out, bounds, _k, used, _pad, table, alibi, mq, mk, drop, scale, _z, causal, left, right, softcap, *_):
    assert table is not None and alibi is None and not drop
    return list(attention(q, k, v, out, bounds, used, table, scale, causal, left, softcap))


def fa3(q, k, v, kn, vn, qv, out, bounds, ck, cn, uq, used, mq, mk, table, *rest):
    *_, scale, causal, left, right, softcap, _i, _m, _s, _p, _sm, aux, world, _r, _t = rest
    assert table is not None and kn is None and qv is None and aux is None and world == 1
    out, lse = attention(q, k, v, out, bounds, used, table, scale, causal, left, softcap)
    return out, lse, torch.zeros(0), torch.zeros(0)


def metadata(batch, *_):
    return torch.zeros(4 * batch + 4, dtype=torch.int32)


COMPUTED = {
    "_C::rms_norm": rms_norm,
    "_C::fused_add_rms_norm": fused_add_rms_norm,
    "_C::silu_and_mul": silu_and_mul,
    "_C::gelu_and_mul": gelu_and_mul,
    "_C::gelu_tanh_and_mul": lambda result, x: gelu_and_mul(result, x, "tanh"),
    "_C::rotary_embedding": rotary_embedding,
    "_C_cache_ops::reshape_and_cache_flash": reshape_and_cache_flash,
    "_vllm_fa2_C::varlen_fwd": fa2,
    "_vllm_fa3_C::fwd": fa3,
    "_vllm_fa3_C::get_scheduler_metadata": metadata,
}
done: set[str] = set()


def install() -> None:
    for full in set(torch._C._dispatch_get_all_op_names()) - done:
        if full.startswith(("_C::", "_C_cache_ops::", "_moe_C::", "_vllm_fa")):
            done.add(full)
            if torch._C._dispatch_has_kernel_for_dispatch_key(full, "CUDA"):
                known = full in COMPUTED
                operators.give(full, operators.on_the_cpu(full, COMPUTED[full]) if known else operators.without(full))
