"""A ZeRO rank that trains with and without `--ds.logit_free` on the same rollouts; started by test_logit_free_zero3.

Arguments: rank, folder of the process group, cases as JSON. Prints one JSON line.
"""

import json
import os
import re
import sys
from pathlib import Path

PROMPT_LENGTH = 40


def main(rank: int, folder: Path, cases: list[dict]) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder / 'store'}", rank=rank, world_size=2)
    sys.path.insert(0, str(Path(__file__).parents[1]))
    print("\n" + json.dumps([trained(**case) for case in cases]))


def trained(flags: dict, vocabulary: int, entropy_coef: float = 0.0, **case) -> dict:
    """(loss, gradient norm) of each optimizer step, this rank's peak memory, and what it gathered in training."""
    import deepspeed
    import zero_jobs as worker

    parse = worker.arguments

    def arguments(case):
        args = parse(case)
        args.ds.logit_free, args.actor.entropy_coef = flags["logit_free"], entropy_coef
        if flags["lora_targets"]:
            args.ds.lora.target_modules = flags["lora_targets"]
        return args

    gather, gathered = deepspeed.comm.all_gather_into_tensor, []

    def counted(output, *args, **kwargs):
        gathered.append(output.numel())
        return gather(output, *args, **kwargs)

    worker.VOCABULARY, worker.PROMPT_LENGTH, worker.arguments = vocabulary, PROMPT_LENGTH, arguments
    fill = worker.fill

    def filled(policy, *args):
        fill(policy, *args)
        gathered.clear()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        filled.before = memory("VmRSS")

    worker.fill, deepspeed.comm.all_gather_into_tensor = filled, counted
    try:
        points = worker.curve(**case)
        return {"points": points, "peak": memory("VmHWM") - filled.before, "gathered": gathered}
    finally:
        worker.fill, worker.arguments, deepspeed.comm.all_gather_into_tensor = fill, parse, gather


def memory(field: str) -> float:
    """MB"""
    return int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3]))
