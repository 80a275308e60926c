"""What is computed of one block of logits, row by row: sums for log-probabilities and entropies, slopes for gradients.

`in_one_pass` runs these functions so that a block passes memory once: on a GPU compiled, on a CPU a few rows at a time.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

CPU_LOGITS = 2**17  # at once on a CPU: they stay in a core's cache


def sums(scale: float, entropy: bool, logits: Tensor, columns: Tensor, top: Tensor) -> tuple[Tensor, ...]:
    """(the largest scaled logit so far; relative to it: the label's, sum of powers, sum of powers times logits)."""
    top = torch.maximum(top, logits.amax(1).to(top.dtype) * scale)
    shifted = torch.add(-top[:, None], logits, alpha=scale)
    powers = shifted.exp()
    at_label, total = shifted.gather(1, columns).squeeze(1), powers.sum(1)
    return top, at_label, total, shifted.mul_(powers).sum(1) if entropy else total


def slopes(
    scale: float, kind: torch.dtype, logits: Tensor, columns: Tensor, inside: Tensor, offset: Tensor, size: Tensor
) -> Tensor:
    """exp(scaled logits + offset), and at the label `size` less."""
    shifted = torch.add(offset[:, None], logits, alpha=scale)
    own = shifted.gather(1, columns).exp() - torch.where(inside, size, 0.0)[:, None]
    return shifted.exp_().to(kind).scatter_(1, columns, own.to(kind))


def slopes_with_entropy(
    scale: float,
    kind: torch.dtype,
    logits: Tensor,
    columns: Tensor,
    inside: Tensor,
    offset: Tensor,
    slope: Tensor,
    level: Tensor,
    at_label: Tensor,
) -> Tensor:
    """p * (slope * log p + level), and at the label `at_label` more; log p are scaled logits + offset."""
    log_p = torch.add(offset[:, None], logits, alpha=scale)
    p = log_p.exp()
    table = log_p.mul_(slope[:, None]).add_(level[:, None]).mul_(p)
    return table.scatter_add_(1, columns, torch.where(inside, at_label, 0.0)[:, None]).to(kind)


def in_one_pass(function: Callable, *constants: Any, into: Tensor | None = None) -> Callable:
    """`into`: a table that is done with, whose memory a table on a CPU takes."""

    def on_rows(logits: Tensor, *rows: Tensor) -> Any:
        if logits.is_cuda:
            return _compiled(function)(*constants, logits, *rows)
        few = max(CPU_LOGITS // logits.shape[1], 1)
        given = zip(*(one.split(few) for one in (logits, *rows)), strict=True)
        if into is None:
            found = [function(*constants, *some) for some in given]
            if isinstance(found[0], Tensor):
                return torch.cat(found)
            return [torch.cat(parts) for parts in zip(*found, strict=True)]
        table = part_of(into, logits.shape[1])
        for rows_of_table, some in zip(table.split(few), given, strict=True):
            rows_of_table.copy_(function(*constants, *some))
        return table

    return on_rows


def part_of(block: Tensor, columns: int) -> Tensor:
    """The block's memory as a smaller block of as many rows."""
    return block.view(-1)[: len(block) * columns].view(len(block), columns)


@functools.cache
def _compiled(function: Callable) -> Callable:
    """The function as one kernel; as it stands if it cannot be compiled here."""
    fast: Callable = torch.compile(function, dynamic=True)
    tried = False

    def run(*given: Any) -> Any:
        nonlocal fast, tried
        try:
            found = fast(*given)
        except Exception as error:
            if tried or isinstance(error, torch.OutOfMemoryError):
                raise
            warnings.warn(f"{function.__name__} runs uncompiled: {type(error).__name__}: {error}", stacklevel=2)
            fast = function
            found = function(*given)
        tried = True
        return found

    return run
