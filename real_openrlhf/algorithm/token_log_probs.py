"""Log-probabilities and entropies of tokens from hidden states and the head's weight, without a table of logits.

One pass over blocks of words, written here because library functions were slower on CPU (benchmarks/head_memory.py).
"""

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from real_openrlhf.algorithm.token_blocks import LOGITS_AT_ONCE, LOGITS_AT_ONCE_ON_GPU

Factors = Sequence[tuple[Tensor, Tensor]]  # (hidden, weight): logits are the sum of hidden @ weight.T


def token_log_probs(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    temperature: float = 1.0,
    bias: Tensor | None = None,
    chunk_tokens: int | None = None,
    entropy: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """(log-probability of each label, entropy or None) of softmax((hidden @ weight.T + bias) / temperature).

    `hidden` is (tokens, width), `weight` (vocabulary, width), `labels` (tokens,). Both results are (tokens,), in fp32
    whatever the inputs are, and differentiable once, with respect to hidden, weight and bias. A negative label is
    ignored: both results are 0 there, nothing is computed for it, and it has no gradient. At most the
    logits of `chunk_tokens` tokens exist at a time; by default 2**24 logits, on a GPU 2**26.
    """
    tokens, words = len(hidden), len(weight)
    shapes = [tuple(tensor.shape) for tensor in (hidden, weight, labels, weight[..., 0] if bias is None else bias)]
    if shapes != [(tokens, weight.shape[-1]), (words, hidden.shape[-1]), (tokens,), (words,)]:
        form = "hidden (tokens, width), weight (vocabulary, width), labels (tokens,) and bias (vocabulary,)"
        raise ValueError(f"shapes must be {form}, got {shapes}")
    if labels.dtype not in (torch.int32, torch.int64) or (chunk_tokens is not None and chunk_tokens < 1):
        got = f"{labels.dtype} and {chunk_tokens}"
        raise ValueError(f"labels must be int32 or int64, and chunk_tokens 1 or more, got {got}")
    logits_at_once = chunk_tokens * len(weight) if chunk_tokens else None
    factors = head_factors(hidden, weight, bias)
    return factored_log_probs(factors, labels, temperature, entropy, logits_at_once=logits_at_once)


def head_factors(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> list[tuple[Tensor, Tensor]]:
    """The products that make a linear layer; the bias is one more column of the weight, for a hidden entry of 1."""
    return [(hidden, weight)] if bias is None else [(hidden, weight), (hidden.new_ones(len(hidden), 1), bias[:, None])]


def factored_log_probs(
    factors: Factors,
    labels: Tensor,
    temperature: float = 1.0,
    entropy: bool = False,
    *,
    rounded: bool = False,
    logits_at_once: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`token_log_probs` of logits that are a sum of products, as those of a layer with adapters are.

    `rounded` computes the products in the dtype of the weights, as the layer does, and the rest in fp32.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
    vocabulary = len(factors[0][1])
    on_host = labels.cpu()  # the only point where the host waits for a GPU
    if len(labels) and int(on_host.max()) >= vocabulary:
        raise ValueError(f"label {int(on_host.max())} is outside a vocabulary of {vocabulary}")
    asked = (on_host >= 0).nonzero().squeeze(1).to(labels.device)
    if len(asked) < len(labels):
        factors = [(hidden.index_select(0, asked), weight) for hidden, weight in factors]
    if logits_at_once is None:
        logits_at_once = LOGITS_AT_ONCE_ON_GPU if labels.is_cuda else LOGITS_AT_ONCE
    head = _Head(temperature, entropy, rounded, max(logits_at_once // max(len(asked), 1) // 8 * 8, 8))
    tensors = (tensor for pair in factors for tensor in pair)
    log_probs, entropies = _TokenLogProbs.apply(head, labels[asked], *tensors)
    nothing = log_probs.new_zeros(len(labels))
    everywhere = None if entropies is None else nothing.index_copy(0, asked, entropies)
    return nothing.index_copy(0, asked, log_probs), everywhere


class _Head(NamedTuple):
    """Computes logits for blocks of `words` words of the vocabulary."""

    temperature: float
    entropy: bool
    rounded: bool
    words: int

    def blocks(self, labels: Tensor, factors: Factors) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """For each block: (words, their logits times temperature, the column of each label, is it here)."""
        if not self.rounded and not labels.is_cuda:
            factors = [(hidden.to(_wide(hidden)), weight) for hidden, weight in factors]
        for start in range(0, len(factors[0][1]), self.words):
            words = slice(start, start + self.words)
            parts = [
                F.linear(hidden, weight[words]) if self.rounded else _product(hidden, weight[words].t())
                for hidden, weight in factors
            ]
            logits = sum(parts[1:], parts[0])
            columns = (labels - start).clamp(0, logits.shape[1] - 1)
            yield words, logits, columns[:, None], columns == labels - start


class _TokenLogProbs(torch.autograd.Function):
    """One pass over blocks of words in forward; one in backward, which computes their logits again.

    Blocks of words and not of tokens, because a block's rows of the weight's gradient are then one product over all
    tokens: summed in fp32 and rounded once, without an fp32 copy of the whole gradient.
    """

    @staticmethod
    def forward(ctx: Any, head: _Head, labels: Tensor, *flat: Tensor) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        picked, total, moment = torch.zeros(3, len(labels), dtype=_wide(flat[0]), device=labels.device)
        top = torch.full_like(total, torch.finfo(torch.float32).min)
        for _, logits, columns, inside in head.blocks(labels, _pairs(flat)):
            # Sums are relative to the largest logit so far: nothing overflows, and a log-probability next to 0 keeps
            # its digits.
            higher, at_label, powers, moments = _one_kernel(
                _sums, 1 / head.temperature, head.entropy, logits, columns, top
            )
            fall, top = top - higher, higher
            picked = torch.where(inside, at_label, picked + fall)
            if head.entropy:
                moment = fall.exp() * (moment + fall * total) + moments
            total = fall.exp() * total + powers
        entropy = total.log() - moment / total if head.entropy else None
        ctx.head = head
        ctx.save_for_backward(labels, top, total, entropy, *flat)
        return picked - total.log(), entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, log_prob_grad: Tensor | None, entropy_grad: Tensor | None) -> tuple[Any, ...]:
        labels, top, total, entropy, *flat = ctx.saved_tensors
        scale, factors, wanted = 1 / ctx.head.temperature, _pairs(flat), _pairs(ctx.needs_input_grad[2:])
        at_label = torch.zeros_like(top) if log_prob_grad is None else log_prob_grad * scale
        if entropy_grad is None:
            # d/d logit_j = -at_label * (p_j - [j is the label]): the size goes into the exponent, the sign into hidden
            signs, more = -at_label.sign(), -at_label.abs()
            table_of: Callable[..., Tensor] = _slopes
            rows = [at_label.abs().log() - total.log() - top]
        else:
            # d/d logit_j = p_j * (slope * log p_j + level), and at the label `more`
            slope = -entropy_grad * scale
            signs, more, table_of = torch.ones_like(top), at_label, _slopes_with_entropy
            rows = [-total.log() - top, slope, slope * entropy - at_label]
        # for a GPU's tensor cores in the format of the weights; a layer's own backward does so too
        narrow = {weight.dtype for _, weight in factors} if labels.is_cuda else set()
        kind = narrow.pop() if len(narrow) == 1 else top.dtype
        signed = [hidden * signs[:, None].to(hidden.dtype) for hidden, _ in factors]
        signed = signed if labels.is_cuda else [hidden.to(_wide(hidden)) for hidden in signed]
        of_hidden = [torch.zeros_like(hidden, dtype=_wide(hidden)) for hidden, _ in factors]
        of_weight = [
            torch.empty_like(weight if wants else weight[:0])
            for (_, weight), (_, wants) in zip(factors, wanted, strict=True)
        ]
        for words, logits, columns, inside in ctx.head.blocks(labels, factors):
            table = _one_kernel(table_of, scale, kind, logits, *rows)
            own = table_of(scale, top.dtype, logits.gather(1, columns), *rows) + more[:, None]
            table.scatter_(1, columns, torch.where(inside[:, None], own.to(kind), table.gather(1, columns)))
            for number, (_, weight) in enumerate(factors):
                slopes, (wants_hidden, wants_weight) = (
                    table.to(weight.dtype) if table.is_cuda else table,
                    wanted[number],
                )
                if wants_hidden:
                    _add_product(of_hidden[number], slopes, weight[words])
                if wants_weight:
                    of_weight[number][words] = _product(slopes.t(), signed[number]).to(weight.dtype)
        of_hidden = [
            total.mul_(signs[:, None]).to(hidden.dtype) for total, (hidden, _) in zip(of_hidden, factors, strict=True)
        ]
        gradients = chain(*zip(of_hidden, of_weight, strict=True))
        return (
            None,
            None,
            *(gradient if wants else None for gradient, wants in zip(gradients, chain(*wanted), strict=True)),
        )


def _pairs(flat: Sequence) -> list[tuple]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _wide(tensor: Tensor) -> torch.dtype:
    """The format of sums: fp32, or float64 for float64 inputs."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _for_tensor_cores(left: Tensor, right: Tensor) -> bool:
    return left.is_cuda and left.dtype == right.dtype and left.dtype in (torch.bfloat16, torch.float16)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """left @ right with fp32 sums, also under autocast; on a GPU's tensor cores, elsewhere as fp32 copies."""
    with torch.autocast(left.device.type, enabled=False):
        if _for_tensor_cores(left, right):
            return torch.mm(left, right, out_dtype=torch.float32)
        wide = torch.promote_types(_wide(left), right.dtype)
        return left.to(wide) @ right.to(wide)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, in one pass over `total`."""
    with torch.autocast(left.device.type, enabled=False):
        if _for_tensor_cores(left, right):
            torch.addmm(total, left, right, out_dtype=torch.float32, out=total)
        else:
            total.addmm_(left.to(total.dtype), right.to(total.dtype))


# Functions of a block's logits, row by row.


def _sums(scale: float, entropy: bool, logits: Tensor, columns: Tensor, top: Tensor) -> tuple[Tensor, ...]:
    """(the largest scaled logit so far; relative to it: the label's, sum of powers, sum of powers times logits)."""
    top = torch.maximum(top, logits.amax(1).to(top.dtype) * scale)
    shifted = torch.add(-top[:, None], logits, alpha=scale)
    powers = shifted.exp()
    at_label, total = shifted.gather(1, columns).squeeze(1), powers.sum(1)
    return top, at_label, total, shifted.mul_(powers).sum(1) if entropy else total


def _slopes(scale: float, kind: torch.dtype, logits: Tensor, offset: Tensor) -> Tensor:
    """exp(scaled logits + offset)"""
    return torch.add(offset[:, None], logits, alpha=scale).exp().to(kind)


def _slopes_with_entropy(
    scale: float, kind: torch.dtype, logits: Tensor, offset: Tensor, slope: Tensor, level: Tensor
) -> Tensor:
    """p * (slope * log p + level), where log p are scaled logits + offset."""
    log_p = torch.add(offset[:, None], logits, alpha=scale)
    p = log_p.exp()
    return log_p.mul_(slope[:, None]).add_(level[:, None]).mul_(p).to(kind)


_uncompiled: list[Exception] = []  # why the compiler failed, from then on


def _one_kernel(function: Callable, scale: float, constant: Any, logits: Tensor, *rows: Tensor) -> Any:
    """The function of a block, compiled on a GPU if that works: a block's logits then pass its memory once."""
    if logits.is_cuda and not _uncompiled:
        try:
            # else the compiler reads `alpha` as its first value for ever: wrong at a second temperature (torch 2.13)
            with torch._dynamo.config.patch(specialize_float=True):
                return _compiled(function)(scale, constant, logits, *rows)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # no compiler, no Python.h, a full disk: torch raises a dozen types
            _uncompiled.append(error)
            warnings.warn(f"--ds.fused_logprobs runs uncompiled, which is slower: {error}", stacklevel=2)
    return function(scale, constant, logits, *rows)


@functools.cache
def _compiled(function: Callable) -> Callable:
    return torch.compile(function, dynamic=True)
