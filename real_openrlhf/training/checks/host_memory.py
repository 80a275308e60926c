"""What a run will need of each machine's own memory: what waits there while something else has the GPUs.

Standard library only. Sums over known tensors, like memory_estimate.py; what a process takes by itself is a guess.
"""

import os

from real_openrlhf.recipes.plan import Plan
from real_openrlhf.training.checks.memory_estimate import GB, Layout, Shape, layout_of

PROCESS_GB = 4.0  # of a policy's or an engine's process: libraries, CUDA's own tables, Ray's store


def host_memory(shape: Shape, layout: Layout, nodes: int, engines: int) -> dict[str, float]:
    """Bytes on each of the machines, where all of it waits at once."""
    weights = 2 * shape.parameters
    trained = shape.adapter_parameters(layout.lora_rank) or shape.parameters
    memory = {"processes, a guess": (layout.ranks + engines) * PROCESS_GB * GB / nodes}
    if layout.vllm_sleeps:
        memory["weights of sleeping vLLM engines"] = weights * engines / nodes
    if layout.adam_offload:
        memory["Adam and gradients in fp32"] = 16 * trained / nodes
    elif layout.policy_sleeps:
        memory["the sleeping policy's Adam and gradients, pinned"] = (12 + layout.gradient_bytes) * trained / nodes
    if layout.reference and layout.reference_offload:
        memory["reference model (bf16)"] = weights / nodes
    return memory


def report(shape: Shape, plan: Plan, host_bytes: float | None) -> tuple[list[str], list[str]]:
    """(lines to print, warnings), the latter where the machine's memory is known."""
    memory = host_memory(shape, layout_of(plan), plan.layout[0], plan.number("--vllm.num_engines"))
    total = sum(memory.values())
    lines = [f"host memory, a machine: {total / GB:.0f} GB"]
    lines += [f"    {size / GB:6.1f}  {name}" for name, size in memory.items()]
    if host_bytes is None or total <= host_bytes:
        return lines, []
    return lines, [
        f"the run may need {total / GB:.0f} GB of host memory, this machine has {host_bytes / GB:.0f} GB: leave out "
        "--vllm.enable_sleep or --ds.enable_sleep where the GPUs have room, or take more machines"
    ]


def here() -> float:
    """Bytes of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
