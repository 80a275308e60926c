"""ZeRO-3 over gloo, which ends gathers in any order (patches/README.md)."""

import deepspeed
from deepspeed.accelerator import get_accelerator
from packaging.version import parse


def waits_for_each_gather(config: dict) -> dict:
    """DeepSpeed's configuration with a wait for each gather: before 0.19.8 it waits for the last of several only.

    Then nothing may be prefetched: one handle stands for several modules' gathers, and waiting for it again calls a
    weight available that was released in between.
    """
    if parse(deepspeed.__version__) < parse("0.19.8") and get_accelerator().communication_backend_name() == "gloo":
        config["zero_optimization"] |= {"stage3_allgather_sequential": True, "stage3_prefetch_bucket_size": 0}
    return config
