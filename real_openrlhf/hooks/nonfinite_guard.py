"""No non-finite number reaches the weights: training stops instead, on every rank, before the optimizer step."""

import functools

import torch
import torch.distributed as dist

# Where DeepSpeed's ZeRO optimizers compute a group's norm over all ranks, without and with optimizer offload.
GROUP_NORMS = ("get_grad_norm_direct", "complete_grad_norm_calculation_for_cpu_offload")


class NonFiniteError(RuntimeError):
    """A loss, score or gradient was nan or infinite; the weights are those of the step before."""


def refuse_nonfinite_gradients(engine) -> None:
    """Make a DeepSpeed engine raise, instead of stepping, when a loss or a gradient is nan or infinite on any rank.

    Losses are watched in themselves: PPO's clamp gives a nan log-probability the gradient 0. One number per step tells
    all ranks. Gradients: DeepSpeed knows each group's norm before the first weight changes, the same on all ranks. One
    that is not finite it overwrites with -1, so that the total looks healthy (1.414 for two groups), and steps on; ZeRO
    1 and 2 in bf16 skip the step in silence instead. fp16 gradients are left to the loss scale, which overflows them
    on purpose.
    """
    optimizer = engine.optimizer
    spoiled: list[torch.Tensor] = []  # per micro-batch of the step: is this rank's loss not finite?

    def refuse(what: str) -> None:
        raise NonFiniteError(
            f"{what} is nan or infinite in optimizer step {engine.global_steps + 1}: stopped before the weights changed. "
            "Resume from the last checkpoint with a lower learning rate (--actor.adam.lr), and look at the last lines of "
            "metrics.jsonl for what grew."
        )

    def watch(owner, name: str):
        """Replace the method `name` of one object by a function of the method and its arguments."""

        def replace(watched):
            method = getattr(owner, name)
            setattr(owner, name, functools.wraps(method)(functools.partial(watched, method)))

        return replace

    @watch(engine, "backward")
    def _(backward, loss: torch.Tensor, *args, **kwargs):
        spoiled.append(~loss.detach().isfinite())
        return backward(loss, *args, **kwargs)

    @watch(optimizer, "step")
    def _(step, *args, **kwargs):
        anywhere = sum(spoiled, torch.zeros((), device=engine.device))
        spoiled.clear()
        dist.all_reduce(anywhere, op=dist.ReduceOp.MAX)
        if anywhere:
            refuse("the loss")
        if not engine.zero_optimization():  # gradients are averaged in place, the same on all ranks
            gradients = [parameter.grad for parameter in engine.module.parameters() if parameter.grad is not None]
            if not all(bool(gradient.isfinite().all()) for gradient in gradients) and not engine.fp16_enabled():
                refuse("a gradient")
        return step(*args, **kwargs)

    for name in GROUP_NORMS:
        if hasattr(optimizer, name):

            @watch(optimizer, name)
            def _(norm, *args, **kwargs):
                value = norm(*args, **kwargs)
                if not value >= 0:
                    refuse("a gradient")
                return value

    if not engine.fp16_enabled() and hasattr(optimizer, "check_overflow"):

        @watch(optimizer, "check_overflow")
        def _(check, *args, **kwargs) -> None:
            check(*args, **kwargs)
            if optimizer.overflow:
                refuse("a gradient")
