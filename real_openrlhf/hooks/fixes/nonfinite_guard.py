"""No non-finite number reaches the weights: training stops instead, on every rank, before the optimizer step."""

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from real_openrlhf.base.errors import NonFiniteError

# Where DeepSpeed's ZeRO optimizers compute a group's norm over all ranks, without and with optimizer offload.
GROUP_NORMS = ("get_grad_norm_direct", "complete_grad_norm_calculation_for_cpu_offload")


def refuse_nonfinite_gradients(engine: Any) -> None:
    """Make a DeepSpeed engine raise, instead of stepping, when a loss or a gradient is nan or infinite on any rank."""
    guard, optimizer = StepGuard(engine), engine.optimizer
    wrap(engine, "backward", guard.backward)
    wrap(optimizer, "step", guard.step)
    for name in GROUP_NORMS:
        if hasattr(optimizer, name):
            wrap(optimizer, name, guard.group_norm)
    # fp16 gradients are left to the loss scale, which overflows them on purpose.
    if not engine.fp16_enabled() and hasattr(optimizer, "check_overflow"):
        wrap(optimizer, "check_overflow", guard.check_overflow)


def wrap(owner: Any, name: str, around: Callable) -> None:
    """Replace one object's method by `around(method, *its arguments)`."""
    method = getattr(owner, name)
    setattr(owner, name, functools.wraps(method)(functools.partial(around, method)))


class StepGuard:
    """Wraps four methods of an engine and its optimizer, in the order in which a step calls them.

    Losses are checked themselves, since PPO's clamp gives a nan log-probability the gradient 0. One all-reduce per
    step informs all ranks. Gradients: DeepSpeed computes each group's norm before it changes a weight, equal on all
    ranks. It overwrites a non-finite norm with -1, so that the total looks healthy (1.414 for two groups), and steps
    on. ZeRO 1 and 2 in bf16 skip the step without a message instead.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.spoiled: list[torch.Tensor] = []  # per micro-batch of the step: is this rank's loss not finite?

    def backward(self, backward: Callable, loss: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        self.spoiled.append(~loss.detach().isfinite())
        return backward(loss, *args, **kwargs)

    def step(self, step: Callable, *args: Any, **kwargs: Any) -> Any:
        anywhere = sum(self.spoiled, torch.zeros((), device=self.engine.device))
        self.spoiled.clear()
        dist.all_reduce(anywhere, op=dist.ReduceOp.MAX)
        if anywhere:
            self.refuse("the loss")
        if not self.engine.zero_optimization():  # gradients are averaged in place, the same on all ranks
            gradients = [parameter.grad for parameter in self.engine.module.parameters()]
            finite = all(bool(gradient.isfinite().all()) for gradient in gradients if gradient is not None)
            if not finite and not self.engine.fp16_enabled():
                self.refuse("a gradient")
        return step(*args, **kwargs)

    def group_norm(self, norm: Callable, *args: Any, **kwargs: Any) -> Any:
        value = norm(*args, **kwargs)
        if not value >= 0:
            self.refuse("a gradient")
        return value

    def check_overflow(self, check: Callable, *args: Any, **kwargs: Any) -> None:
        check(*args, **kwargs)
        if self.engine.optimizer.overflow:
            self.refuse("a gradient")

    def refuse(self, what: str) -> NoReturn:
        raise NonFiniteError.of(what, self.engine.global_steps + 1)
