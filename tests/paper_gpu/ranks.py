"""Ranks of ZeRO on paper cards, by the stand-in of NCCL: OpenRLHF's policy actor and a REAL batch on each.

    python ranks.py RANKS:STAGE ...
    python ranks.py RANKS:STAGE other_order | on_the_host

Two updates beside those of one rank: the same losses and gradient norms. The ranks are forks of what has imported.
"""

import json
import os
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "PAPER_WAIT": "240", "PAPER_FORKS": "1"}
FLAGS = ("--ds.attn_implementation", "flash_attention_torch", "--ds.packing_samples", "--vllm.num_engines", "1")
FLAGS += ("--ds.grad_accum_dtype", "fp32")
CASE = {"dtype": "bf16", "fused_logprobs": True, "checkpointing": True, "flags": FLAGS}
CASE |= {"group": 8, "groups_per_update": 2}


def rank_of(rank: int, ranks: int, stage: int, fault: str, folder: str) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": str(rank)}
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    store = f"file://{folder}/{ranks}.{stage}.store"  # of one group: the next would read this one's keys
    dist.init_process_group("nccl", store, rank=rank, world_size=ranks, device_id=device)
    import zero_jobs

    policy, _ = zero_jobs.filled(model=f"{folder}/model", zero_stage=stage, micro_batch_size=16 // ranks, **CASE)
    trainer = policy.trainer
    forward = trainer.forward
    if fault == "other_order" and rank == 1:
        dist.all_reduce(torch.ones(3, device="cuda"))
    if fault == "on_the_host":
        trainer.forward = lambda *args, **how: left(forward(*args, **how))
    points = zero_jobs.points_of(policy)
    dist.barrier()
    used = torch.cuda.max_memory_allocated()
    Path(folder, f"{ranks}.{rank}").write_text(json.dumps([points, used]))


def left(now):
    return replace(now, old=now.old.cpu())


def run(ranks: int, stage: int, fault: str, folder: str) -> list:
    """[points, bytes] of each rank, or an error."""
    children = []
    for rank in range(ranks):
        if not (pid := os.fork()):
            code = 1
            try:
                os.environ["TRITON_CACHE_DIR"] = folder
                rank_of(rank, ranks, stage, fault, folder)
                code = 0
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    if any(codes):
        sys.exit(f"ranks ended with {codes}")
    return [json.loads(Path(folder, f"{ranks}.{rank}").read_text()) for rank in range(ranks)]


def main(layouts: list[str], fault: str = "") -> None:
    import openrlhf.cli.train_ppo_ray  # noqa: F401  before the forks
    import tiny_models

    with tempfile.TemporaryDirectory() as folder:
        tiny_models.model_of(num_hidden_layers=2).bfloat16().save_pretrained(f"{folder}/model")
        tiny_models.letters().save_pretrained(f"{folder}/model")
        for ranks, stage in (map(int, layout.split(":")) for layout in layouts):
            several = run(ranks, stage, fault, folder)
            ((one, _),) = run(1, stage, "", folder)
            points = several[0][0]
            assert all(each == points for each, _ in several), several
            for alone, shared in zip(one, points, strict=True):
                for a, b in zip(alone, shared, strict=True):
                    assert abs(a - b) <= 0.02 * max(abs(a), 0.1), (one, points)
            print(f"{ranks} ranks of ZeRO-{stage}: (loss, gradient norm) {points}; one rank {one}", flush=True)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if ":" in word]
    main(words, *[word for word in sys.argv[1:] if word not in words])
