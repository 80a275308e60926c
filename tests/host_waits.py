"""Counts where the host waits for its device: on CPU nothing waits, but the same operations are asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# What needs a value, or a size that follows from values, on the host.
WAITS = {
    "aten::_local_scalar_dense",  # item(), float(), bool(), an index that is a tensor
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::repeat_interleave.Tensor",
    "aten::equal",
}


class Waits(TorchDispatchMode):
    """Counts what waits, outside host maths (see `on_the_host`)."""

    def __init__(self) -> None:
        super().__init__()
        self.count = self.host = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name()
        selects = name == "aten::index.Tensor" and any(
            index is not None and index.dtype == torch.bool for index in args[1]
        )
        self.count += not self.host and (name in WAITS or selects)
        return function(*args, **(kwargs or {}))


@contextmanager
def on_the_host(waits: Waits, owner, *names: str) -> Iterator[None]:
    """While these functions run, tensors are on the host already: a value read there waits for nothing."""

    def wrapped(original):
        def run(*args, **kwargs):
            waits.host += 1
            try:
                return original(*args, **kwargs)
            finally:
                waits.host -= 1

        return run

    with mock.patch.multiple(owner, **{name: wrapped(getattr(owner, name)) for name in names}):
        yield
