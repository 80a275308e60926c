"""DeepSpeed's Adam for offloaded states carries the powers of its betas from step to step; no checkpoint has them.

A new process that is given a step other than the next one takes std::pow instead of the product, which differs in the
last bit. That is enough: after a resume the first update differs, and all that follows.
"""

from typing import Any

import torch


def restore_powers(optimizer: Any) -> None:
    """Multiply as often as the steps before did, over numbers that nobody reads."""
    steps = max((int(state["step"]) for state in optimizer.state.values() if "step" in state), default=0)
    for step in range(1, steps + 1):
        pretend(optimizer, step)


def pretend(optimizer: Any, step: int) -> None:
    """A step of one weight that is not there; nothing where the optimizer keeps no powers."""
    if not hasattr(optimizer, "ds_opt_adam"):  # DeepSpeedCPUAdam has it
        return
    group = optimizer.param_groups[0]
    weight, gradient, first, second = (torch.zeros(1) for _ in range(4))
    settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"], group["bias_correction"])
    optimizer.ds_opt_adam.adam_update(optimizer.opt_id, step, *settings, weight, gradient, first, second)
