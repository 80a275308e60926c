"""No non-finite number reaches the weights: training stops instead, on every rank, before the optimizer step."""

from collections.abc import Callable

import torch

# Where DeepSpeed's ZeRO optimizers compute a group's norm over all ranks, without and with optimizer offload.
GROUP_NORMS = ("get_grad_norm_direct", "complete_grad_norm_calculation_for_cpu_offload")


class NonFiniteError(RuntimeError):
    """A loss, score or gradient was nan or infinite; the weights are those of the step before."""


def refuse_nonfinite_gradients(engine) -> None:
    """Make a DeepSpeed engine raise, instead of stepping, when a loss or a gradient is nan or infinite on any rank.

    DeepSpeed knows each group's norm before the first weight changes, the same on all ranks. One that is not finite it
    overwrites with -1, so that the total looks healthy (1.414 for two groups), and steps on; ZeRO 1 and 2 in bf16 skip
    the step in silence instead. Raising at these places costs nothing. fp16 is left to its loss scale, which overflows
    on purpose. A loss that is not finite can still have a finite gradient, so it is made to spoil its own: then the
    norm, which is known to all ranks, tells of the loss too.
    """
    optimizer, backward = engine.optimizer, engine.backward

    def refuse() -> None:
        raise NonFiniteError(
            f"the loss or a gradient is nan or infinite in optimizer step {engine.global_steps + 1}: stopped before the "
            "weights changed. Resume from the last checkpoint with a lower learning rate (--actor.adam.lr), and look at "
            "the last lines of metrics.jsonl for what grew."
        )

    def spoiled_backward(loss: torch.Tensor, *args, **kwargs):
        return backward(loss * torch.where(loss.detach().isfinite(), 1.0, torch.nan), *args, **kwargs)

    def checked_norm(norm: Callable) -> Callable:
        def checked(*args, **kwargs):
            value = norm(*args, **kwargs)
            if not value >= 0:
                refuse()
            return value

        return checked

    def checked_overflow(check: Callable) -> Callable:
        def checked(*args, **kwargs) -> None:
            check(*args, **kwargs)
            if optimizer.overflow:
                refuse()

        return checked

    def checked_step(step: Callable) -> Callable:
        def checked(*args, **kwargs):
            gradients = (parameter.grad for parameter in engine.module.parameters() if parameter.grad is not None)
            if not all(bool(gradient.isfinite().all()) for gradient in gradients):
                refuse()
            return step(*args, **kwargs)

        return checked

    engine.backward = spoiled_backward
    if not engine.zero_optimization():  # gradients are averaged in place, the same on all ranks
        optimizer.step = checked_step(optimizer.step)
        return
    for name in GROUP_NORMS:
        if hasattr(optimizer, name):
            setattr(optimizer, name, checked_norm(getattr(optimizer, name)))
    if not engine.fp16_enabled() and hasattr(optimizer, "check_overflow"):
        optimizer.check_overflow = checked_overflow(optimizer.check_overflow)
