"""What a run will need of each machine's own memory: what waits there while something else has the GPUs.

Standard library only. Sums over known tensors, like memory_estimate.py; what a process takes by itself is a guess.
"""

import math
import os

from real_openrlhf.recipes.plan import Plan
from real_openrlhf.training.checks import memory_estimate
from real_openrlhf.training.checks.memory_estimate import GB, Shape, gradient_bytes, trained_parameters

PROCESS_GB = 4.0  # of a policy's or an engine's process: libraries, CUDA's own tables, Ray's store
SUB_GROUP = 1_000_000_000  # parameters of a rank that DeepSpeed keeps in one buffer under ZeRO-3, at most


def pinned(size: float) -> int:
    """Bytes that PyTorch takes for a pinned block of this size: a power of two (CachingHostAllocator.h)."""
    return 1 << max(math.ceil(size) - 1, 0).bit_length()


def engine_bytes(shape: Shape, tensor_parallel: int) -> int:
    """A sleeping engine's weights: each is a block of its own on each of its GPUs. Norms and biases are left out."""
    return tensor_parallel * sum(pinned(2 * size / tensor_parallel) for size in shape.matrices)


def policy_bytes(shape: Shape, plan: Plan) -> float:
    """A sleeping rank's fp32 weights and two moments, and its gradients."""
    held = trained_parameters(shape, plan) / math.prod(plan.layout)
    largest = SUB_GROUP if plan.number("--ds.zero_stage") >= 3 else held
    groups = [min(largest, held - largest * index) for index in range(math.ceil(held / largest))]
    return 3 * sum(pinned(4 * group) for group in groups) + pinned(gradient_bytes(plan) * held)


def host_memory(shape: Shape, plan: Plan) -> dict[str, float]:
    """Bytes on each of the machines, where all of it waits at once."""
    nodes, gpus = plan.layout[0], math.prod(plan.layout)
    engines, tensor_parallel = plan.number("--vllm.num_engines"), plan.number("--vllm.tensor_parallel_size")
    memory = {"processes, a guess": (gpus + engines * tensor_parallel) * PROCESS_GB * GB / nodes}
    if "--vllm.enable_sleep" in plan.flags:
        memory["weights of sleeping vLLM engines, pinned"] = engine_bytes(shape, tensor_parallel) * engines / nodes
    if "--ds.adam_offload" in plan.flags:
        memory["Adam and gradients in fp32"] = 16 * trained_parameters(shape, plan) / nodes
    elif "--ds.enable_sleep" in plan.flags:
        memory["the sleeping policy's Adam and gradients, pinned"] = policy_bytes(shape, plan) * gpus / nodes
    if memory_estimate.offloads_reference(plan):
        shards = sum(pinned(2 * size / gpus) for size in shape.matrices)
        memory["reference model (bf16), pinned"] = shards * gpus / nodes
    return memory


def report(shape: Shape, plan: Plan, host_bytes: float | None) -> tuple[list[str], list[str]]:
    """(lines to print, warnings), the latter where the machine's memory is known."""
    memory = host_memory(shape, plan)
    total = sum(memory.values())
    lines = memory_estimate.sized(f"host memory, a machine: {total / GB:.0f} GB", memory)
    if host_bytes is None or total <= host_bytes:
        return lines, []
    return lines, [
        f"the run may need {total / GB:.0f} GB of host memory, this machine has {host_bytes / GB:.0f} GB: leave out "
        "--vllm.enable_sleep or --ds.enable_sleep where the GPUs have room, or take more machines"
    ]


def here() -> float:
    """Bytes of this machine."""
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
