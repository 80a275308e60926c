"""How often does a ZeRO-3 policy start from corrupted weights when two CPU ranks load it over gloo?

Each start is a fresh pair of processes that loads a model as OpenRLHF's Actor does for ZeRO-3, several times, gathers
every parameter by itself and compares it with the file, on both ranks. Three ways:

    last   DeepSpeed's default: of several gathers at once it waits for the last one only
    all    the same, but the last handle's wait() waits for every handle first: nothing else changes
    fix    stage3_allgather_sequential, as hooks/cpu/zero3.py sets it over gloo

    python benchmarks/zero3_start.py --ways last all fix --starts 20 --loads 5
    python benchmarks/zero3_start.py --gloo           # no DeepSpeed: does a later small gather finish first?
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path

WAYS = ("last", "all", "fix")
ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TORCHDYNAMO_DISABLE": "1",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--starts", type=int, default=5, help="pairs of processes for each way (default %(default)s)")
    parser.add_argument("--loads", type=int, default=5, help="loads in each start (default %(default)s)")
    parser.add_argument("--hidden", type=int, default=128, help="hidden size of the model (default: the tiny model's)")
    parser.add_argument("--gloo", action="store_true", help="only the experiment without DeepSpeed")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank is not None:
        run_rank(args)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        args.folder = Path(folder)
        if args.gloo:
            print_gloo(start(args))
        else:
            make_model(args.folder / "model", args.hidden)
            print_table(args, {way: [start(args, way) for _ in range(args.starts)] for way in args.ways})
    return 0


def start(args, way: str = "last") -> list:
    """One fresh pair of processes; what each rank reports."""
    command = [sys.executable, __file__, "--folder", args.folder, "--loads", args.loads, "--ways", way]
    command += ["--gloo"] * args.gloo
    processes = [
        subprocess.Popen(
            [*map(str, command), "--rank", str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    (args.folder / "store").unlink(missing_ok=True)
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise RuntimeError(errors[-3000:])
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


def make_model(folder: Path, hidden: int) -> None:
    """A random Qwen2 whose every parameter is random, biases and norms too, so that a mix-up cannot hide."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=64, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=64, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.02)
    model.to(torch.bfloat16).save_pretrained(folder)


def run_rank(args) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(RANK=str(args.rank), WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group(
        "gloo", f"file://{args.folder / 'store'}", timedelta(seconds=120), rank=args.rank, world_size=2
    )
    report = gloo_trials() if args.gloo else loads(args.folder / "model", args.loads, args.ways[0])
    dist.barrier()
    print(json.dumps(report))


# ---------------------------------------------------------------------------------------------------------------------
# loading


def loads(model: Path, count: int, way: str) -> list[list[str]]:
    """Names of the parameters that differ from the file after each load."""
    import deepspeed
    from openrlhf.cli.train_ppo_ray import parse_args
    from openrlhf.models import Actor
    from openrlhf.utils.utils import get_strategy
    from safetensors.torch import load_file

    flags = f"--actor.model_name_or_path {model} --ds.zero_stage 3 --reward.remote_url unused".split()
    strategy = get_strategy(
        parse_args(
            [
                *flags,
                "--algo.advantage.estimator",
                "reinforce",
                "--train.batch_size",
                "2",
                "--train.micro_batch_size",
                "1",
            ]
        )
    )
    strategy.setup_distributed()
    config = strategy.get_ds_train_config()
    if way != "fix":
        config["zero_optimization"]["stage3_allgather_sequential"] = False
    if way == "all":
        wait_for_all_gathers()
    expected = load_file(model / "model.safetensors")
    found = []
    for _ in range(count):
        actor = Actor(str(model), attn_implementation="eager", param_dtype="bf16", ds_config=config)
        wrong = []
        for name, parameter in actor.model.named_parameters():
            with deepspeed.zero.GatheredParameters([parameter]):  # of a single one, which is waited for
                if not parameter.data.equal(expected[name]):
                    wrong.append(name)
        found.append(wrong)
    return found


def wait_for_all_gathers() -> None:
    """Waiting for the last gather then means waiting for all that were started."""
    import deepspeed.comm

    gather, started = deepspeed.comm.all_gather_into_tensor, []

    class Handle:
        def wait(self) -> None:
            while started:
                started.pop(0).wait()

    def all_gather_into_tensor(*args, async_op: bool = False, **kwargs):
        handle = gather(*args, async_op=async_op, **kwargs)
        if not async_op:
            return handle
        started.append(handle)
        return Handle()

    deepspeed.comm.all_gather_into_tensor = all_gather_into_tensor


def print_table(args, starts: dict) -> None:
    print(
        f"| way | starts | corrupted at once | after some load | loads | corrupted | which parameters |\n|{'---|' * 7}"
    )
    for way, pairs in starts.items():
        every = [wrong for first, _ in pairs for wrong in first]
        names = Counter(name.removeprefix("model.layers.") for wrong in every for name in wrong)
        which = ", ".join(f"{name} {count}" for name, count in names.most_common()) or "none"
        at_once = sum(bool(first[0]) for first, _ in pairs)
        some_time = sum(any(first) for first, _ in pairs)
        print(f"| {way} | {len(pairs)} | {at_once} | {some_time} | {len(every)} | {sum(map(bool, every))} | {which} |")
        if any(first != second for first, second in pairs):
            print(f"with `{way}` the ranks saw different parameters", file=sys.stderr)


# ---------------------------------------------------------------------------------------------------------------------
# gloo alone


def gloo_trials(trials: int = 200) -> list:
    """[bytes of the first gather, trials, first one still running, its buffer not whole] after the second's wait()."""
    import torch
    import torch.distributed as dist

    small = torch.ones(64, dtype=torch.bfloat16)
    rows = []
    for size in (1 << 13, 1 << 17, 1 << 20, 1 << 23):
        big = torch.ones(size, dtype=torch.bfloat16)
        running = torn = 0
        for _ in range(trials if size < 1 << 23 else trials // 10):
            into_big, into_small = torch.zeros(2 * size, dtype=big.dtype), torch.zeros(128, dtype=small.dtype)
            dist.barrier()
            first = dist.all_gather_into_tensor(into_big, big, async_op=True)
            second = dist.all_gather_into_tensor(into_small, small, async_op=True)
            second.wait()
            running += not first.is_completed()
            torn += not bool(into_big.all())
            first.wait()
            assert bool(into_big.all())
        rows.append([2 * size, trials if size < 1 << 23 else trials // 10, running, torn])
    return rows


def print_gloo(ranks: list) -> None:
    print(
        "| rank | first gather, bytes per rank | trials | running after the second's wait() | not whole |\n"
        f"|{'---|' * 5}"
    )
    for rank, rows in enumerate(ranks):
        for size, trials, running, torn in rows:
            print(f"| {rank} | {size} | {trials} | {running} | {torn} |")


if __name__ == "__main__":
    sys.exit(main())
