"""vLLM's own CUDA operators that a dense model needs, computed as in operators.py. The others refuse."""

from itertools import pairwise

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


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox, rope_dim_offset=0, inverse=False):
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


def attention(g, table):
    """Of packed queries over a paged cache of keys and values; a sequence's last query is at its last key."""
    q, k, v, ends = g["q"], g["k"], g["v"], g["cu_seqlens_q"].tolist()
    assert not g["softcap"] and g["window_size_left"] < 0
    out = torch.empty_like(q) if g["out"] is None else g["out"]
    for row, (begin, end) in enumerate(pairwise(ends)):
        keys = int(g["seqused_k"][row])
        if begin == end or not keys:
            continue
        pages = table[row, : -(-keys // k.shape[1])].long()
        times = q.shape[1] // k.shape[2]
        x = q[begin:end].transpose(0, 1).float()
        y, z = (one[pages].flatten(0, 1)[:keys].transpose(0, 1).float().repeat_interleave(times, 0) for one in (k, v))
        logits = x @ y.mT * g["softmax_scale"]
        seen = operators.ones(end - begin, keys, dtype=torch.bool)
        if g["is_causal"]:
            seen = seen.tril(keys - (end - begin))
        p = logits.masked_fill(~seen, float("-inf")).softmax(-1)
        out[begin:end] = (p @ z).transpose(0, 1).to(out.dtype)
    return out, operators.zeros(q.shape[1], len(q))


def fa2(**given):
    assert given["alibi_slopes"] is None and not given["p_dropout"]
    return list(attention(given, given["block_table"]))


def fa3(**given):
    assert all(given[name] is None for name in ("k_new", "q_v", "s_aux"))
    scales = (given[name] for name in ("q_descale", "k_descale", "v_descale"))
    assert all(one is None or bool((one == 1).all()) for one in scales)
    return *attention(given, given["page_table"]), operators.zeros(0), operators.zeros(0)


def by_name(full, function):
    """PyTorch leaves out what has its default value."""
    given = torch._C._get_schema(full, "").arguments

    def call(*args, **named):
        names = {one.name: one.default_value for one in given}
        return function(**names | dict(zip(names, args, strict=False)) | named)

    return call


def metadata(batch, *_, **__):
    return operators.zeros(4 * batch + 1, dtype=torch.int32)


COMPUTED = {
    "_C::rms_norm": rms_norm,
    "_C::fused_add_rms_norm": fused_add_rms_norm,
    "_C::silu_and_mul": silu_and_mul,
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
                known = COMPUTED.get(full)
                known = by_name(full, known) if known in (fa2, fa3) else known
                operators.give(full, operators.on_the_cpu(full, known) if known else operators.without(full))
