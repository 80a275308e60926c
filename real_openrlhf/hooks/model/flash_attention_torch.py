"""`--ds.attn_implementation flash_attention_torch`: attention by kernels that PyTorch itself ships, with a backward.

transformers calls `attention` in every layer. Sequences are packed one behind another: on CUDA one call of
`varlen_attn` takes them all, on CPU each is computed by itself.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel

from real_openrlhf.base.errors import UserError
from real_openrlhf.hooks.model import model_support

NAME = model_support.ATTENTION


class Sequences(NamedTuple):
    """Boundaries of packed sequences."""

    bounds: Tensor  # int32: the start of each sequence, then the end of the last
    longest: int
    places: Tensor | None = None  # indices of the packed tokens in the flattened padded batch

    @classmethod
    def from_lengths(cls, lengths: Tensor, places: Tensor | None = None, device: Any = "cpu") -> "Sequences":
        """Takes tensors on the host: the caller's copy to the host is the only wait for the device."""
        lengths = lengths[lengths > 0]
        bounds = F.pad(lengths.cumsum(0), (1, 0)).int()
        return cls(bounds.to(device), int(lengths.max()), None if places is None else places.to(device))

    @classmethod
    def from_mask(cls, mask: Tensor) -> "Sequences":
        visible = mask.cpu()
        return cls.from_lengths(visible.sum(-1), visible.flatten().nonzero().squeeze(1), mask.device)

    @classmethod
    def from_positions(cls, positions: Tensor) -> "Sequences":
        """A sequence begins at the start of each row, and where a position is not the previous one plus 1."""
        begins = F.pad(positions.cpu().diff() != 1, (1, 0), value=True).flatten().nonzero().squeeze(1)
        return cls.from_lengths(F.pad(begins, (0, 1), value=positions.numel()).diff(), None, positions.device)


def register() -> None:
    """Must run in a process before it loads a model for training or log-probabilities."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, keep_mask)
    accept_attention(NAME, refuse_unknown)


def refuse_unknown(model: PreTrainedModel) -> None:
    """Refuse a model whose attention is more than causal softmax attention with a window."""
    if problem := model_support.attention_problem(model.config.get_text_config().to_dict(), type(model)):
        refuse(f"{type(model).__name__} {problem}")


def refuse(what: str, remedy: str = model_support.ATTENTION_REMEDY) -> NoReturn:
    raise UserError(f"{NAME}: {what}. {remedy}")


def keep_mask(batch_size: int, *, attention_mask: Tensor | None = None, use_vmap: bool = False, **_) -> Tensor | None:
    """Return the padding mask unchanged: `attention` applies causality and windows itself."""
    if use_vmap:
        refuse("this model adds a mask of its own to the causal one")
    return attention_mask


def attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    position_ids: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Takes (batch, heads, tokens, width), returns (batch, tokens, heads, width)."""
    if dropout or any(others.get(name) is not None for name in ("softcap", "s_aux")):
        refuse("this model asks for dropout, a cap of its scores or attention sinks")
    if others.get("is_causal") is False or not getattr(module, "is_causal", True) or query.shape[2] != key.shape[2]:
        refuse("attention that is not causal over whole sequences, or with a cache of keys")
    if query.shape[3] != value.shape[3]:
        refuse(f"keys of width {query.shape[3]} and values of width {value.shape[3]}")
    batch, _, length, _ = query.shape
    packed = sequences(attention_mask, position_ids, batch)
    q, k, v = (states.transpose(1, 2).flatten(0, 1) for states in (query, key, value))
    if packed.places is not None:
        q, k, v = (states[packed.places] for states in (q, k, v))
    way = by_kernel if query.is_cuda else one_by_one
    result = way(q, k, v, packed, scaling, sliding_window)
    if packed.places is not None:
        result = result.new_zeros(batch * length, *result.shape[1:]).index_copy(0, packed.places, result)
    return result.view(batch, length, *result.shape[1:]), None


def sequences(mask: Tensor | None, positions: Tensor | None, batch: int) -> Sequences:
    """Computed in the first layer of a forward, then kept on the mask or positions tensor that all layers receive."""
    given: Any = positions if mask is None else mask
    if given is None:  # no other attention could separate packed responses either
        refuse("this model hands attention neither positions nor a mask", model_support.PACKING_REMEDY)
    if given.ndim != 2:
        refuse("this model hands attention neither positions nor a mask of padding, of (batch, tokens)")
    if not hasattr(given, "_sequences"):
        by_mask = mask is not None
        given._sequences = Sequences.from_mask(given) if by_mask else Sequences.from_positions(given.expand(batch, -1))
    return given._sequences


def by_kernel(q: Tensor, k: Tensor, v: Tensor, of: Sequences, scale: float | None, window: int | None) -> Tensor:
    """The kernel's window does not count the token itself; -1 means no window."""
    if q.dtype not in (torch.bfloat16, torch.float16):
        refuse(f"the kernel takes bf16 and fp16, not {q.dtype}")
    sides, shared = (window - 1 if window else -1, 0), q.shape[1] != k.shape[1]
    ends = of.bounds, of.bounds, of.longest, of.longest
    result: Any = varlen_attn(q, k, v, *ends, scale=scale, window_size=sides, enable_gqa=shared)
    return result


def one_by_one(q: Tensor, k: Tensor, v: Tensor, of: Sequences, scale: float | None, window: int | None) -> Tensor:
    parts, shared = [], q.shape[1] != k.shape[1]
    for begin, end in pairwise(of.bounds.tolist()):
        seen, length = None, end - begin
        if window and length > window:
            seen = q.new_ones(length, length, dtype=torch.bool).tril().triu(1 - window)
        x, y, z = (states[begin:end].transpose(0, 1)[None] for states in (q, k, v))
        part = F.scaled_dot_product_attention(x, y, z, seen, 0.0, seen is None, scale=scale, enable_gqa=shared)
        parts.append(part[0].transpose(0, 1))
    return torch.cat(parts)


def accept_attention(known: str, fits: Callable[[Any], None]) -> None:
    """Let models have the attention `known`, if `fits` does not raise for them. Transformers itself would look for the
    name on the hub, or take another kernel without an error."""
    choose = PreTrainedModel._check_and_adjust_attn_implementation
    if choose.__module__ == __name__:
        return

    def chosen(model: PreTrainedModel, name: str | None, *rest: Any, **named: Any) -> str:
        if name != known:
            return choose(model, name, *rest, **named)
        fits(model)
        return known

    PreTrainedModel._check_and_adjust_attn_implementation = chosen
