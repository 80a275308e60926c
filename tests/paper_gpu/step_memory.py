"""The memory of a step at a recipe's true shape, in PyTorch's own CUDA allocator: python step_memory.py RECIPE PROMPTS

The actor's side of two steps, with sleep between, by benchmarks/actor_step.py. Large tensors take their memory and are
never computed (PAPER_LIMIT), so three checks of numbers are off and the head is uncompiled. Of several cards one rank
runs alone, and NCCL's stand-in answers for the others (PAPER_ALONE). LAYERS=2 for a quick one.
"""

import json
import os
import struct
import sys
import tempfile
from math import prod
from pathlib import Path

ABOVE = 2.5  # GB that cache and fragmentation may take, of the forecast's 5 for all that CUDA takes
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "examples")]
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "LOCAL_RANK": "0", "PAPER_ALONE": "1"}
os.environ["TORCH_NCCL_ENABLE_MONITORING"] = "0"  # it reads the store, which is gone by then


def sparse_model(folder: Path, config: dict) -> None:
    """config.json, and weights that are a hole in a file."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from real_openrlhf.training import tiny_task

    made = Qwen2Config(**config, max_position_embeddings=16384, architectures=["Qwen2ForCausalLM"], dtype="bfloat16")
    made.save_pretrained(folder)
    with torch.device("meta"):
        shapes = {name: list(one.shape) for name, one in Qwen2ForCausalLM(made).state_dict().items()}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at := at + 2 * prod(shape)]}
    words = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(words)) + words)
        file.truncate(8 + len(words) + at)
    for file in (tiny_task.unpack() / "model").iterdir():
        if "token" in file.name or "chat" in file.name:
            (folder / file.name).write_bytes(file.read_bytes())


def gb(number: float) -> str:
    return f"{number / 1e9:.2f}"


def main(name: str, prompts: int) -> None:
    import gpu_step
    import torch
    import torch.distributed as dist
    from actor_step import Step, rollouts
    from openrlhf.cli.train_ppo_ray import parse_args

    from real_openrlhf.forecast import memory
    from real_openrlhf.hooks import policy_trainer
    from real_openrlhf.hooks.fixes import nonfinite_guard
    from real_openrlhf.hooks.model import fused_logprobs
    from real_openrlhf.recipes.algorithms import ALGORITHMS
    from real_openrlhf.recipes.recipes import RECIPES
    from real_openrlhf.recipes.run import compose

    fused_logprobs.FusedLogprobsHead.check = lambda *_: None
    nonfinite_guard.StepGuard.refuse = lambda *_: None
    nonfinite_guard.StepGuard.check_overflow = lambda guard, *_, **__: setattr(guard.engine.optimizer, "overflow", 0)
    policy_trainer.Mismatch.judge = lambda *_: None
    dist.distributed_c10d._store_based_barrier = lambda *_, **__: None  # it counts ranks
    torch.Tensor.pin_memory = lambda one, *_: torch.empty_like(one, device="cpu", pin_memory=True)  # it would copy
    cuda, card, recipe = torch.cuda, torch.device("cuda", 0), RECIPES[name]
    config = dict(memory.KNOWN_CONFIGS[recipe.model])
    config["num_hidden_layers"] = int(os.environ.get("LAYERS", config["num_hidden_layers"]))
    os.environ["WORLD_SIZE"] = str(recipe.gpus)
    with tempfile.TemporaryDirectory() as folder:
        sparse_model(Path(folder), config)
        group = int(recipe.flags["--rollout.n_samples_per_prompt"].text)
        user = {
            "--actor.model_name_or_path": folder,
            "--rollout.batch_size": prompts,
            "--train.batch_size": prompts * group,
            "--reward.remote_url": "unused",
        }
        run = compose(recipe, ALGORITHMS["real"], {flag: (str(value),) for flag, value in user.items()})
        where = {"rank": 0, "world_size": recipe.gpus, "device_id": card}
        dist.init_process_group("nccl", f"file://{folder}/store", **where)
        step = Step(parse_args(run.argv()), ranks=recipe.gpus)
    print(f"engine {gb(cuda.memory_allocated())} GB", flush=True)
    answers = gpu_step.lengths(run)
    prompt = run.args.data.max_len - run.args.rollout.max_new_tokens
    samples = rollouts(answers, prompt, group, 12)
    for number in (1, 2):
        cuda.reset_peak_memory_stats()
        step.train(samples)
        stats = cuda.memory_stats()
        print(
            f"step {number}: {sum(answers)} tokens, {gb(cuda.max_memory_allocated())} GB allocated, "
            f"{gb(cuda.max_memory_reserved())} reserved, asleep {gb(cuda.memory_allocated())} and "
            f"{gb(cuda.memory_reserved())}, {stats['num_alloc_retries']} retries",
            flush=True,
        )
    used = cuda.max_memory_allocated() / 1e9
    cuda.empty_cache()  # does it suffice where the card grants little more?
    os.environ["PAPER_CAP_GB"] = str(used + ABOVE + float(os.environ.get("PAPER_CONTEXT_GB", 0.5)))
    step.train(samples)
    print(f"{ABOVE} GB more than allocated is enough, {cuda.memory_stats()['num_alloc_retries']} retries", flush=True)
    shape = memory.shape_of(config)
    need, most = memory.peak(shape, run.args, cuda.get_device_properties(0).total_memory)
    print(f"estimate {gb(need)} to {gb(most)} GB, {gb(memory.RUNTIME_BYTES)} of them for CUDA")
    assert used * 1e9 <= most - memory.RUNTIME_BYTES, "above the estimate"
    print("allocated memory is below the estimate")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
