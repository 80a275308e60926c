"""Which attention and which optimizer a run has, and what of them a compiler must make first."""

import importlib.util
import shutil

from real_openrlhf.recipes.plan import Plan

PACKAGES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}
ATTENTION, OFFLOAD = "--ds.attn_implementation", "--ds.adam_offload"


def lines(plan: Plan) -> list[str]:
    name = plan.text(ATTENTION)
    about = {
        "flash_attention_torch": "PyTorch's own kernels",
        "eager": "plain tensor operations of transformers",
        "sdpa": "PyTorch's scaled_dot_product_attention",
    }
    if (chosen := plan.text("--actor.optim") or "adam") != "adam":
        optimizer = f"DeepSpeed's {chosen}"
    elif OFFLOAD in plan.flags:
        optimizer = f"DeepSpeed's Adam on the CPU ({OFFLOAD}), which g++ compiles at the first start"
    else:
        optimizer = "PyTorch's AdamW, fused on GPUs"
    return [
        f"attention: {name}, {about.get(name, f'of the package {PACKAGES.get(name, name)}')}",
        f"optimizer: {optimizer}",
    ]


def problems(plan: Plan) -> list[str]:
    """Packages and compilers that this machine lacks."""
    found = []
    name = plan.text(ATTENTION)
    package = PACKAGES.get(name)
    if package and not importlib.util.find_spec(package):
        found.append(
            f"{ATTENTION} {name} needs the package {package}, which is not installed. Give {ATTENTION} "
            "flash_attention_torch, which needs none."
        )
    if OFFLOAD in plan.flags and not shutil.which("g++"):
        found.append(f"{OFFLOAD}: DeepSpeed compiles its Adam for the CPU, and there is no g++. Install it.")
    return found
