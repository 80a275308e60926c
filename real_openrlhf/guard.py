"""No non-finite number reaches the weights: training stops instead, on every rank, before the optimizer step."""

import math


class NonFiniteError(RuntimeError):
    """A loss, score or gradient was nan or infinite; the weights are those of the step before."""


def refuse_nonfinite_gradients(engine) -> None:
    """Make a DeepSpeed engine's optimizer raise, instead of stepping, when the global gradient norm is not finite.

    The norm is over all ranks, so all of them raise together; it is known before the first parameter changes, so the
    check costs nothing and leaves the weights as they were. DeepSpeed itself checks fp16 only.
    """
    optimizer = engine.optimizer
    unscale_and_clip = getattr(optimizer, "unscale_and_clip_grads", None)
    if unscale_and_clip is None:  # ZeRO stage 0 keeps plain optimizers, which have no such place
        return

    def checked(gradients, total_norm, *args, **kwargs):
        if not math.isfinite(total_norm):
            raise NonFiniteError(
                f"the gradient norm is {float(total_norm)} in optimizer step {engine.global_steps + 1}: stopped before the "
                "weights changed. Resume from the last checkpoint with a lower learning rate (--actor.adam.lr), and look "
                "at the last lines of metrics.jsonl for what grew."
            )
        return unscale_and_clip(gradients, total_norm, *args, **kwargs)

    optimizer.unscale_and_clip_grads = checked
