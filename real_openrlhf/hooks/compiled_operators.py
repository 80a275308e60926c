"""What DeepSpeed compiles on CPU when a run first needs it, and what it asks before: as little as training takes.

Its AdamW for GPUs would be compiled for a minute on CPU, and does there what PyTorch's does. Only the one of offloaded
states is, with --actor.adam_offload.
"""

import functools
import platform
from pathlib import Path

from typing import Any

import cpuinfo
import deepspeed
from deepspeed.accelerator import get_accelerator
from deepspeed.ops.adam import cpu_adam
from deepspeed.ops.op_builder.cpu.builder import CPUOpBuilder
from deepspeed.runtime.engine import DeepSpeedEngine

_arguments, _asked, _optimizer = (
    CPUOpBuilder.cxx_args,
    cpuinfo.get_cpu_info,
    DeepSpeedEngine.get_optimizer_configuration,
)


def compile_less() -> None:
    """No collective over shared memory, which only DeepSpeed's inference calls, no AdamW that PyTorch has, and no
    debugging symbols."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    CPUOpBuilder.cxx_args = lambda self: [word for word in _arguments(self) if word != "-g"]
    cpuinfo.get_cpu_info = cpu_adam.get_cpu_info = cpu_info
    if get_accelerator().device_name() == "cpu":
        DeepSpeedEngine.get_optimizer_configuration = optimizer


def optimizer(engine: DeepSpeedEngine, parameters: dict[str, Any], *rest: Any, **named: Any) -> Any:
    """PyTorch's AdamW unless its states are offloaded."""
    if not engine.zero_use_cpu_optimizer():
        parameters["torch_adam"] = True
    return _optimizer(engine, parameters, *rest, **named)


@functools.cache
def cpu_info() -> dict:
    """What DeepSpeed asks py-cpuinfo two or three times an operator, which starts a process of a second each time."""
    listed = Path("/proc/cpuinfo").read_text().partition("\n\n")[0] if platform.machine() == "x86_64" else ""
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in listed.splitlines())}
    if not {"flags", "vendor_id"} <= fields.keys():
        return _asked()
    return {"arch": "X86_64", "flags": fields["flags"].split(), "vendor_id_raw": fields["vendor_id"]}
