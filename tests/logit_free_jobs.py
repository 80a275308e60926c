"""What runs on a rank that trains with `--ds.logit_free` or without: steps, gathers of the head's weight, memory."""

import ctypes
import gc
import re
from pathlib import Path
from unittest import mock

from deepspeed import comm
from zero_jobs import filled, points_of


def trained(**case) -> dict:
    """(loss, gradient norm) of each optimizer step, and of these steps: how often the model ran forward and backward
    and its head was gathered, and by how many MB the memory of this rank rose at its peak."""
    policy, case = filled(**case)
    engine = policy.actor.model
    head = engine.module.get_output_embeddings()
    own_part = getattr(head, "base_layer", head).weight.ds_tensor.data_ptr()
    gather, backward = comm.comm.cdb.all_gather_into_tensor, engine.backward
    counts = {"forwards": 0, "backwards": 0, "gathers": 0}

    def counted_gather(*args, input_tensor, **kwargs):
        counts["gathers"] += input_tensor.data_ptr() == own_part
        return gather(*args, input_tensor=input_tensor, **kwargs)

    def counted_backward(*args, **kwargs):
        counts["backwards"] += 1
        return backward(*args, **kwargs)

    def count_forward(*_) -> None:
        counts["forwards"] += 1

    engine.module.register_forward_pre_hook(count_forward)
    engine.backward = counted_backward
    before = fresh_peak()
    # Every gather of DeepSpeed's ends in its backend; its modules reach that by several names.
    with mock.patch.object(comm.comm.cdb, "all_gather_into_tensor", counted_gather):
        points = points_of(policy, case)
    return {"points": points, "peak": memory("VmHWM") - before, **counts}


def fresh_peak() -> float:
    """What this process holds now, from where its peak is measured anew."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier cases left behind is not at hand for this one
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(field: str) -> float:
    """MB"""
    return int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
