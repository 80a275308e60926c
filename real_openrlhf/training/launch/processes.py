"""Which processes a run consists of, on which devices, and what we say to them in variables; for a dry run."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass

from real_openrlhf.hooks.engine import engine_process
from real_openrlhf.recipes.plan import Plan
from real_openrlhf.training.checks.memory_estimate import PROCESS_GB
from real_openrlhf.training.launch.place import Place

VERIFIERS = 3  # of each engine's process: two that are asked, and one ready in place of a killed one

# Why we set a variable, unless the user does. Those of the first line win over the user's.
WHY = {
    "CUDA_VISIBLE_DEVICES": "no GPU is visible",
    "DS_ACCELERATOR": "DeepSpeed computes on the CPU",
    "RAY_ADDRESS": "a Ray of this run's own",
    "RAY_OVERRIDE_RESOURCES": "Ray never waits for cores; on CPU its GPUs are logical ones",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "Ray listens on the loopback",
    "VLLM_HOST_IP": "so does vLLM",
    "GLOO_SOCKET_IFNAME": "and gloo",
    "VLLM_USE_FLASHINFER_SAMPLER": "it would compile itself, with nvcc",
    "REAL_ENGINE_ENDS_WITH_PARENT": "an engine ends with a killed actor",
    "OMP_NUM_THREADS": "processes share the cores",
    "VLLM_CPU_KVCACHE_SPACE": "GB; vLLM would take a share of the machine's memory",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "the engine runs in its actor's process",
    "TORCHDYNAMO_DISABLE": "compiling takes longer than a small run",
    "TOKENIZERS_PARALLELISM": "tokenizers warn in forked processes",
    "TORCH_EXTENSIONS_DIR": "DeepSpeed compiles its CPU Adam once",
    "REAL_RAY_DASHBOARD": "the dashboard takes as long to start as the policy",
    "REAL_FORKED_WORKERS": "processes are forks of one that has imported the stack",
    "REAL_REPEATABLE_ENGINE": "seeded samples do not depend on other requests",
    "HF_HUB_OFFLINE": "the model is in a folder",
    "RAY_USAGE_STATS_ENABLED": "no reports",
    "VLLM_NO_USAGE_STATS": "no reports",
}


@dataclass(frozen=True)
class Process:
    """`name` is the title of a Ray actor, else what it is."""

    name: str
    count: int
    device: str
    cores: int  # that Ray counts
    memory_gb: float  # of host memory each, without what sleeps there: a guess
    does: str


def of(plan: Plan, place: Place) -> Iterator[Process]:
    ranks, on_gpu = math.prod(plan.layout), "CPU" if place.on_cpu else "a GPU"
    engines, width = plan.number("--vllm.num_engines"), plan.number("--vllm.tensor_parallel_size")
    shared = on_gpu if place.on_cpu or not plan.colocated else "the policy's GPU"
    engine_gpus = shared if width == 1 else f"{width} GPUs"
    yield Process("driver", 1, "none", 0, PROCESS_GB, "starts Ray and the actors")
    yield Process("PPOTrainer", 1, "none", 1, PROCESS_GB, "controller: plans steps, labels, writes the log")
    yield Process("PolicyModelActor", ranks, on_gpu, 1, PROCESS_GB, "a rank of the policy")
    if plan.needs_reference:
        yield Process("ReferenceModelActor", ranks, shared, 1, PROCESS_GB, "a rank of the reference model")
    yield Process("RolloutRayActor", engines, engine_gpus, 1, PROCESS_GB, "vLLM engine, calls the reward function")
    yield Process("verifier", engines * VERIFIERS, "none", 0, 0.2, "grades one answer at a time")


def variables(plan: Plan, place: Place) -> dict[str, str]:
    """What the run's environment has and the user's has not; of an engine too."""
    ours = {name: value for name, value in place.environment(plan).items() if os.environ.get(name) != value}
    return ours | engine_process.ENVIRONMENT


def table(plan: Plan, place: Place) -> list[str]:
    rows = [("process", "number", "device", "cores", "memory", "")]
    for one in of(plan, place):
        memory = f"{one.memory_gb:g} GB"
        rows.append((one.name, str(one.count), one.device, str(one.cores or "-"), memory, one.does))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.append("cores: that Ray counts; memory: host memory each, a guess, without what sleeps there")
    lines.append("variables that are set for them:")
    for name, value in variables(plan, place).items():
        short = value if len(value) < 40 else f"{value[:30]}..."
        lines.append(f"  {name}={short}: {WHY[name]}")
    return lines
