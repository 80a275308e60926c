"""What runs on a rank that trains with `--ds.logit_free` or without: steps, gathers of the head's weight, memory."""

import ctypes
import gc
import re
from pathlib import Path
from unittest import mock

import torch
from deepspeed import comm
from torch import Tensor
from zero_jobs import filled, points_of


def trained(**case) -> dict:
    """(loss, gradient norm) of each optimizer step, how often the head was gathered, and by how many MB the memory of
    this rank rose at its peak."""
    policy, case = filled(**case)
    head = policy.actor.model.module.get_output_embeddings()
    own_part = getattr(head, "base_layer", head).weight.ds_tensor
    gather, gathers = comm.comm.cdb.all_gather_into_tensor, []

    def counted_gather(*args, input_tensor, **kwargs):
        gathers.append(holds(input_tensor.flatten(), own_part.flatten().to(input_tensor.dtype)))
        return gather(*args, input_tensor=input_tensor, **kwargs)

    before = fresh_peak()
    # Every gather of DeepSpeed's ends in its backend; its modules reach that by several names.
    with mock.patch.object(comm.comm.cdb, "all_gather_into_tensor", counted_gather):
        points = points_of(policy, case)
    return {"points": points, "peak": memory("VmHWM") - before, "gathers": sum(gathers)}


def holds(sent: Tensor, part: Tensor) -> bool:
    """Whether this rank's part of a weight is what it sends, alone or in a bucket with others."""
    starts = (sent[: max(sent.numel() - part.numel() + 1, 0)] == part[0]).nonzero().flatten().tolist()
    return any(torch.equal(sent[at : at + part.numel()], part) for at in starts)


def fresh_peak() -> float:
    """What this process holds now, from where its peak is measured anew."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what earlier cases left behind is not at hand for this one
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def memory(field: str) -> float:
    """MB"""
    return int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024
