"""Which collectives a rank takes part in, and in what order: where two ranks differ, NCCL waits for ever."""

import importlib

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Order(TorchDispatchMode):
    """Every operator of torch.distributed on this rank: name, tensors' shapes and formats, ranks of the group."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name()
        if name.startswith("c10d"):
            leaves = tree_leaves((args, kwargs))
            groups = [
                ProcessGroup.unbox(one) for one in leaves if isinstance(one, torch.ScriptObject) and is_group(one)
            ]
            tensors = [(tuple(one.shape), str(one.dtype)) for one in leaves if isinstance(one, torch.Tensor)]
            self.calls.append((name, tensors, [dist.get_process_group_ranks(one) for one in groups]))
        return function(*args, **(kwargs or {}))


def is_group(one: torch.ScriptObject) -> bool:
    return "ProcessGroup" in str(one._type())


def of(function: str, swapped: bool = False, **case) -> list[tuple]:
    """While a job of another module runs. `swapped`: then two that every rank begins, but not in one order."""
    module, _, name = function.rpartition(".")
    job = getattr(importlib.import_module(module), name)
    with Order() as order:
        job(**case)
        if swapped:
            own = [torch.zeros(size) for size in (1, 2)][:: 1 if dist.get_rank() else -1]
            groups = [dist.new_group(backend="gloo") for _ in range(2)][:: 1 if dist.get_rank() else -1]
            for work in [
                dist.all_reduce(one, group=group, async_op=True) for one, group in zip(own, groups, strict=True)
            ]:
                work.wait()
    return order.calls
