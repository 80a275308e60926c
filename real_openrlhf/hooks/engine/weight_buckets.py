"""Send weights to vLLM in buckets of about 1 GB instead of tensor by tensor.

For each tensor OpenRLHF calls every engine, gathers a handle from every rank and waits for all. A bucket is sent in
the same way, as one flat tensor, and the engine splits it into the weights again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import torch
from torch import Tensor

BUCKET_BYTES = 1 << 30


class Parts:
    """Names and shapes in a bucket, sent in place of a tensor's name. vLLM would turn a dataclass into a dict."""

    def __init__(self, names: Sequence[str], shapes: Sequence[Sequence[int]]) -> None:
        self.names, self.shapes = names, shapes

    def __str__(self) -> str:
        return f"{self.names[0]} and {len(self.names) - 1} more"

    def split(self, flat: Tensor) -> list[tuple[str, Tensor]]:
        sizes = [prod(shape) for shape in self.shapes]
        return [
            (name, part.view(shape))
            for name, part, shape in zip(self.names, flat.split(sizes), self.shapes, strict=True)
        ]


class Buckets:
    """Yields (Parts, flat tensor), made of (name, parameter) pairs; `gathered(parameter)` gathers ZeRO-3 shards."""

    def __init__(self, weights: Any, gathered: Callable[[Any], AbstractContextManager]) -> None:
        self.weights, self.gathered = weights, gathered
        self.shapes: list[list[tuple[int, ...]]] = []  # of each bucket's tensors
        room, kind = 0, None
        for _, weight in getattr(weights, "parameters", weights):  # shapes only: lora_weights.py merges when sent
            shape = self._shape(weight)
            size = prod(shape) * weight.element_size()
            if size > room or weight.dtype != kind:
                self.shapes.append([])
                room, kind = BUCKET_BYTES, weight.dtype
            self.shapes[-1].append(shape)
            room -= size

    def _shape(self, weight: Any) -> tuple[int, ...]:
        if hasattr(weight, "ds_shape"):
            return tuple(weight.ds_shape)
        with self.gathered(weight):  # a tensor-parallel parameter has its whole shape only while it is gathered
            return tuple(weight.shape)

    def __len__(self) -> int:
        return len(self.shapes)

    def __iter__(self) -> Iterator[tuple[Parts, Tensor]]:
        left = iter(self.weights)
        for shapes in self.shapes:
            names, weights = zip(*(next(left) for _ in shapes), strict=True)
            flat = torch.empty(sum(map(prod, shapes)), dtype=weights[0].dtype, device=weights[0].device)
            parts = Parts(names, shapes)
            for (_, part), weight in zip(parts.split(flat), weights, strict=True):
                with self.gathered(weight):
                    part.copy_(weight.data)
            setattr(flat, "ds_shape", flat.shape)  # noqa: B010  OpenRLHF reads `ds_shape` under ZeRO-3
            yield parts, flat
