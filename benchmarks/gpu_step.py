"""What a recipe's step takes of a GPU, actor's side: seconds, memory beside the estimate, waits of the host.

The model has the recipe's shape and random weights, the answers have lognormal lengths (median 2,700 tokens, cut at
the recipe's limit). Each method runs in a process of its own: a step to warm up, steps that are measured, and one that
counts where the host waits for the GPU. On an H100 a step of 32 prompts takes 40 to 50 s by arithmetic (a quarter of
the recipe's 128), both methods together seven minutes; two with 8 prompts (`--prompts 8 --steps 1`).

    python benchmarks/gpu_step.py                                        # qwen1.5b-1gpu on a GPU: real and grpo
    python benchmarks/gpu_step.py --recipe cpu-like-gpu --prompts 8      # small, on CPU
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

from expected import Expected

MEDIAN_SHARE, SPREAD = 2700 / 8192, 0.6
CPU = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1"}
FIELDS = ("method", "seconds", "tokens/s", "allocated GB", "reserved GB", "estimate GB", "host waits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="qwen1.5b-1gpu")
    parser.add_argument("--algos", nargs="+", default=["real", "grpo"])
    parser.add_argument("--prompts", type=int, default=32, help="of 8 answers each, in one update (%(default)s)")
    parser.add_argument("--steps", type=int, default=2, help="that are measured (%(default)s)")
    parser.add_argument("--algo", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help="only save the random model there, with rows to train on")
    args = parser.parse_args()
    if args.algo:
        print("\n" + json.dumps(measure(args)))
        return
    if args.folder:
        save_model(args)
        return
    with tempfile.TemporaryDirectory() as folder:
        args.folder = folder
        save_model(args)
        rows = [run(args, algo) for algo in args.algos]
    show(rows, on_cpu(args))


def show(rows: list[dict], cpu: bool) -> None:
    print("| " + " | ".join(FIELDS) + " |\n|" + "---|" * len(FIELDS))
    for row in rows:
        print("| " + " | ".join(str(row[field]) for field in FIELDS) + " |")
    expected = Expected()
    for row in rows:  # reserved memory has fragmentation too, which the estimate has not
        share = float(row["allocated GB"]) / float(row["estimate GB"])
        expected.say(
            f"{row['method']}, allocated memory of the estimate", share, share <= 1 or cpu, "1 at most, on a GPU"
        )
    expected.end()


def on_cpu(args: argparse.Namespace) -> bool:
    from real_openrlhf.recipes.recipes import RECIPES

    return RECIPES[args.recipe].on_cpu


def run(args: argparse.Namespace, algo: str) -> dict:
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "HF_HUB_OFFLINE": "1"}
    environment |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    environment["TORCH_EXTENSIONS_DIR"] = str(Path(sys.prefix) / "torch_extensions")
    if on_cpu(args):
        environment |= CPU
    words = ["--recipe", args.recipe, "--prompts", str(args.prompts), "--steps", str(args.steps)]
    command = [sys.executable, __file__, *words, "--algo", algo, "--folder", args.folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{algo}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def shape_config(args: argparse.Namespace) -> Mapping[str, object]:
    """What config.json would say of the recipe's model."""
    import tiny_task
    from tiny_task import ReverseTask

    from real_openrlhf.forecast.memory import KNOWN_CONFIGS
    from real_openrlhf.recipes.recipes import RECIPES

    model = RECIPES[args.recipe].model
    if model != "reverse":
        return KNOWN_CONFIGS[model]
    return tiny_task.make_model(ReverseTask, tiny_task.make_tokenizer(ReverseTask), 0).config.to_dict()


def save_model(args: argparse.Namespace) -> None:
    import tiny_task
    import torch
    from tiny_task import ReverseTask
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = {**shape_config(args), "max_position_embeddings": 16_384}
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(Qwen2Config(**config)).to(torch.bfloat16)
    model.save_pretrained(args.folder)
    tiny_task.make_tokenizer(ReverseTask).save_pretrained(args.folder)  # its tokens are not looked at
    tiny_task.write_data(ReverseTask(), Path(args.folder))
    model = None  # else this process keeps its memory while others measure: in fp32 7 GB for 1.5B, 30 for 7B
    torch.cuda.empty_cache()


def run_of(args: argparse.Namespace):
    from real_openrlhf.recipes.algorithms import ALGORITHMS
    from real_openrlhf.recipes.recipes import RECIPES
    from real_openrlhf.recipes.run import compose

    recipe = RECIPES[args.recipe]
    group = int(recipe.flags["--rollout.n_samples_per_prompt"].text)
    user = {
        "--actor.model_name_or_path": args.folder,
        "--actor.num_gpus_per_node": 1,
        "--rollout.batch_size": args.prompts,
        "--train.batch_size": args.prompts * group,
        "--reward.remote_url": "unused",
    }
    return compose(recipe, ALGORITHMS[args.algo], {flag: (str(value),) for flag, value in user.items()})


def lengths(run) -> list[int]:
    draw, longest = random.Random(0), run.args.rollout.max_new_tokens
    count = run.args.rollout.batch_size * run.args.rollout.n_samples_per_prompt
    median = MEDIAN_SHARE * longest
    return [min(max(int(median * draw.lognormvariate(0, SPREAD)), 2), longest) for _ in range(count)]


def measure(args: argparse.Namespace) -> dict:
    import torch
    import torch.distributed as dist
    from actor_step import Step, peak, reset_peak, rollouts
    from openrlhf.cli.train_ppo_ray import parse_args

    from real_openrlhf.forecast import memory

    run, cuda = run_of(args), torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as folder:
        device = torch.device("cuda", 0) if cuda else None  # else NCCL guesses
        dist.init_process_group(
            "nccl" if cuda else "gloo", f"file://{folder}/store", rank=0, world_size=1, device_id=device
        )
        step = Step(parse_args(run.argv()), ranks=1)
    answers = lengths(run)
    prompt_tokens = run.args.data.max_len - run.args.rollout.max_new_tokens
    samples = rollouts(answers, prompt_tokens, run.args.rollout.n_samples_per_prompt, 12)
    step.train(samples)
    torch.cuda.reset_peak_memory_stats() if cuda else reset_peak()
    seconds = []
    for _ in range(args.steps):
        begun = time.perf_counter()
        step.train(samples)
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    if cuda:
        used = torch.cuda.max_memory_allocated() / 1e9, torch.cuda.max_memory_reserved() / 1e9
    else:
        used = peak() / 1e3, peak() / 1e3
    shape = memory.shape_of(dict(shape_config(args)))
    size = torch.cuda.get_device_properties(0).total_memory if cuda else 0
    estimate = (memory.peak(shape, run.args, size)[1] - memory.RUNTIME_BYTES) / 1e9
    middle = statistics.median(seconds)
    tokens = sum(answers) + prompt_tokens * len(answers)
    numbers = f"{middle:.1f}", f"{tokens / middle:,.0f}", f"{used[0]:.1f}", f"{used[1]:.1f}", f"{estimate:.1f}"
    return dict(zip(FIELDS, (args.algo, *numbers, waits(step, samples)), strict=True))


def waits(step, samples: list) -> int | str:
    """How often a step makes the host wait, as CUDA tells it; on CPU nothing waits (tests/slow counts for REAL)."""
    import torch

    if not torch.cuda.is_available():
        return "-"
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        step.train(samples)
    torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(one.message) for one in told)


if __name__ == "__main__":
    main()
