"""How many threads each process of a CPU run computes with, by the model's size and by what computes at once."""

import os
from pathlib import Path

from real_openrlhf.errors import UserError
from real_openrlhf.files import parsed
from real_openrlhf.recipes.plan import Plan
from real_openrlhf.training.checks import memory_estimate, preflight
from real_openrlhf.training.tasks import smollm2

VARIABLE = "OMP_NUM_THREADS"
# Parameters. With two threads a forward and backward takes 0.87 of the time at 0.1 M, 0.68 at 1.3 M, 0.63 at 82 M; a
# decoding step 1.02, 1.01 and 0.75 (plain transformers, 16 sequences of 32 tokens, paired rounds on two cores).
SMALL = 1_000_000


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0))


def shared(at_once: int) -> int:
    """Threads for each of so many processes."""
    return max(cores() // max(at_once, 1), 1)


def choice(plan: Plan) -> tuple[int, str]:
    """(threads of each process, why). The user's own variable wins over it: place.py."""
    ranks, size = plan.layout[0] * plan.layout[1], parameters(plan.text("--actor.model_name_or_path"))
    engines = plan.number("--vllm.num_engines") * plan.number("--vllm.tensor_parallel_size")
    if size is not None and size < SMALL:
        return (
            1,
            f"the model has {size / 1e6:.1f} M parameters: under {SMALL / 1e6:.0f} M a second thread gains little",
        )
    if "--train.async_enable" in plan.flags:
        at_once, why = ranks + engines, f"{engines} engines generate while {ranks} ranks train"
    else:
        at_once, why = max(ranks, engines), f"generation ({engines} engines) and training ({ranks} ranks) take turns"
    return shared(at_once), f"{cores()} cores; {why}"


def parameters(model: str) -> int | None:
    """Parameters of a model that is here, or will be made; None: unknown, so not a tiny one."""
    folder = Path(model).expanduser()
    if not folder.exists() and not preflight.HUB_ID.fullmatch(model):
        return smollm2.PARAMETERS if smollm2.NAME in model else 0  # made before training starts
    try:
        shape = memory_estimate.shape_of(parsed((folder / "config.json").read_bytes()))
    except (OSError, ValueError, AttributeError, UserError):
        return None
    return shape.parameters if shape else None
