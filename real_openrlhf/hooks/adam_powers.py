"""DeepSpeed's Adam for CPU carries the powers of its betas from step to step, and no checkpoint has them.

A new optimizer that is given a step other than the next one takes std::pow instead of the product, which differs in
the last bit. That is enough: after a resume the first update differs, and all that follows.
"""

from typing import Any

import torch


def restore_powers(optimizer: Any) -> None:
    """Multiply as often as the steps before did, over a number that nobody reads."""
    if not hasattr(optimizer, "ds_opt_adam"):
        return
    steps = max((int(state["step"]) for state in optimizer.state.values() if "step" in state), default=0)
    group = optimizer.param_groups[0]
    settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"], group["bias_correction"])
    nothing = [torch.zeros(1) for _ in range(4)]  # weight, gradient and its two moments
    for step in range(1, steps + 1):
        optimizer.ds_opt_adam.adam_update(optimizer.opt_id, step, *settings, *nothing)
