"""DeepSpeed's Adam for offloaded states carries the powers of its betas from step to step; no checkpoint has them.

A new process that is given a step other than the next one takes std::pow instead of the product, which differs in the
last bit. That is enough: after a resume the first update differs, and all that follows.
"""

from typing import Any

import torch


def restore_powers(optimizer: Any) -> None:
    """Multiply as often as the steps before did: by steps of a weight that nobody reads."""
    if not hasattr(optimizer, "ds_opt_adam"):  # DeepSpeedCPUAdam has it
        return
    group, nobodys = optimizer.param_groups[0], [torch.zeros(1) for _ in range(4)]  # weight, gradient, moments
    settings = (group["lr"], *group["betas"], group["eps"], group["weight_decay"], group["bias_correction"])
    for step in range(1, max((int(state.get("step", 0)) for state in optimizer.state.values()), default=0) + 1):
        optimizer.ds_opt_adam.adam_update(optimizer.opt_id, step, *settings, *nobodys)
