"""What an actor's step costs with REAL, beside built-in GRPO with and without its reference model.

The controller's experience maker and the policy actor are OpenRLHF's and the package's own, on real ZeRO-3 engines
over gloo; Ray and vLLM are left out, and the rollouts are random tokens, the same for every variant. The model is
large enough that arithmetic is measured: 256 hidden, 4 layers, 8,000 words, responses of 128 tokens, recomputation as
in the GPU recipes. Variants take turns (A B C ... A B C ...); a step is compared with the baseline of its round.

    python benchmarks/step_time.py                     # everything, 13 minutes on two quiet cores
    python benchmarks/step_time.py --ranks 1 --updates 4 --rounds 5
    python benchmarks/step_time.py --ranks 1 --updates 4 --uniform 0 0.25 0.5 0.75
"""

import argparse
import os
import resource
import statistics
import sys
import tempfile
from pathlib import Path

# before anything imports torch or DeepSpeed
ENVIRONMENT = {
    "DS_ACCELERATOR": "cpu",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_ARENA_MAX": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
    "TORCH_EXTENSIONS_DIR": str(Path(sys.prefix) / "torch_extensions"),
}
os.environ.update(ENVIRONMENT)

SKIPPING = "REAL, skipping"
PROMPTS, GROUP, PROMPT_TOKENS, RESPONSE_TOKENS = 8, 8, 16, 128
GRPO, GRPO_NO_KL = "GRPO, the paper's", "GRPO without KL"
NO_KL = ["--algo.kl.init_coef", "0"]
KL = ["--algo.kl.init_coef", "0.001", "--algo.kl.use_loss", "--algo.kl.estimator", "k3"]
VARIANTS = {
    GRPO_NO_KL: ["--actor.policy_loss_type", "ppo", *NO_KL],
    GRPO: ["--actor.policy_loss_type", "ppo", *KL],
    "REAL": ["--actor.policy_loss_type", "real", *NO_KL],
    SKIPPING: ["--actor.policy_loss_type", "real", *NO_KL, "--train.skip_zero_gradient"],
    "REAL, scored first": ["--actor.policy_loss_type", "real", *NO_KL, "--algo.real.max_live_micro_batches", "0"],
    "REAL, old always": ["--actor.policy_loss_type", "real", *NO_KL, "--algo.real.kl_old_coef", "1e-9"],
}


def arguments(variant: str, model: str, updates: int, ranks: int):
    from openrlhf.cli.train_ppo_ray import parse_args

    flags = {
        "--actor.model_name_or_path": model,
        "--actor.num_gpus_per_node": ranks,
        "--ref.num_gpus_per_node": ranks,
        "--actor.adam.lr": 1e-9,  # next to nothing: every variant trains the same policy
        "--actor.lr_scheduler": "constant",
        "--algo.advantage.estimator": "group_norm",
        "--reward.remote_url": "unused",
        "--ds.zero_stage": 3,
        "--ds.attn_implementation": "sdpa",
        "--train.batch_size": PROMPTS * GROUP // updates,
        "--train.micro_batch_size": min(GROUP // ranks, PROMPTS * GROUP // updates // ranks),
        "--rollout.batch_size": PROMPTS,
        "--rollout.micro_batch_size": GROUP // ranks,
        "--rollout.n_samples_per_prompt": GROUP,
        "--data.max_len": PROMPT_TOKENS + RESPONSE_TOKENS,
        "--vllm.sync_backend": "gloo",
    }
    switches = ["--actor.gradient_checkpointing_enable", "--train.colocate_all"]
    return parse_args([*(str(word) for flag in flags.items() for word in flag), *switches, *VARIANTS[variant]])


def make_model(folder: str) -> None:
    sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
    from tiny_task import ReverseTask, make_tokenizer
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        hidden_size=256, num_hidden_layers=4, vocab_size=8000, intermediate_size=1024, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=256, tie_word_embeddings=False,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    make_tokenizer(ReverseTask).save_pretrained(folder)


def work(rank: int, ranks: int, folder: str, args, pipe) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK="0")
    import torch
    import torch.distributed as dist
    from actor_step import Step, rollouts

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    dist.init_process_group("gloo", init_method=f"file://{folder}/store{ranks}", rank=rank, world_size=ranks)
    lengths = [RESPONSE_TOKENS] * (PROMPTS * GROUP)
    for updates in args.updates:
        every = {variant: arguments(variant, f"{folder}/model", updates, ranks) for variant in args.variants}
        steps = {variant: Step(own, ranks) for variant, own in every.items()}
        for uniform in args.uniform:
            for number in range(args.rounds + 1):  # the first one warms up
                for variant in list(steps)[:: 1 if number % 2 else -1]:
                    measured, samples = [None] * ranks, rollouts(lengths, PROMPT_TOKENS, GROUP, 8000, uniform)
                    dist.all_gather_object(measured, steps[variant].measured(samples))
                    if rank == 0 and number:
                        pipe.send(((updates, uniform), variant, tuple(map(max, zip(*measured, strict=True)))))
        del steps
    if rank == 0:
        pipe.send(None)


def receive(pipe):
    try:
        return pipe.recv()
    except EOFError:
        sys.exit("a rank has died; its error is above")


def show(ranks: int, results: dict[tuple[int, float], dict[str, list[tuple]]], variants: list[str]) -> None:
    layout = "groups torn over two ranks" if ranks == 2 else "groups whole on one rank"
    print(f"\n{layout}: medians of paired rounds, [quartiles]")
    bases = [name for name in (GRPO_NO_KL, GRPO, "REAL") if name in variants]
    columns = f"{'seconds':>9}" + "".join(f"{'over ' + name:>26}" for name in bases)
    print(f"{'updates':>7}{'uniform':>8}  {'':20}{columns}{'processor time':>17}{'peak MB':>9}{'over':>7}")
    for (updates, uniform), by_variant in results.items():
        base = by_variant[bases[0]]
        for variant in variants:
            own = by_variant[variant]
            seconds = statistics.median(one[0] for one in own)
            ratios = [paired(own, by_variant[name], 0) for name in bases]
            processor = statistics.median(a[1] / b[1] for a, b in zip(own, base, strict=True))
            memory = statistics.median(one[2] for one in own)
            share = memory / statistics.median(one[2] for one in base)
            compared = f"{seconds:9.2f}{''.join(f'{ratio:>26}' for ratio in ratios)}"
            print(f"{updates:7}{uniform:8.2f}  {variant:20}{compared}{processor:17.3f}{memory:9.0f}{share:7.2f}")


def paired(own: list[tuple], base: list[tuple], column: int) -> str:
    return quartiles([a[column] / b[column] for a, b in zip(own, base, strict=True)])


def quartiles(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.3f} [{low:.3f} {high:.3f}]"


def main() -> None:
    import torch.multiprocessing as mp

    from real_openrlhf.training.trainer_process import drop_stale_locks

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], choices=[1, 2])
    parser.add_argument("--updates", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--uniform", type=float, nargs="+", default=[0.0], help="share of groups that are all right")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=[GRPO_NO_KL, GRPO, "REAL"])
    args = parser.parse_args()
    drop_stale_locks(Path(ENVIRONMENT["TORCH_EXTENSIONS_DIR"]))
    context = mp.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        make_model(f"{folder}/model")
        for ranks in args.ranks:
            here, there = context.Pipe()
            processes = [
                context.Process(target=work, args=(rank, ranks, folder, args, there)) for rank in range(ranks)
            ]
            for process in processes:
                process.start()
            there.close()  # so that the end of these is the end of what can be read
            results: dict[tuple[int, float], dict[str, list[tuple]]] = {}
            while (line := receive(here)) is not None:
                (updates, uniform), variant, measured = line
                results.setdefault((updates, uniform), {}).setdefault(variant, []).append(measured)
                said = f"{ranks} ranks, {updates} updates, {uniform:g} uniform, {variant}"
                print(f"{said}: {measured[0]:.2f} s", flush=True)
            for process in processes:
                process.join()
            show(ranks, results, args.variants)


if __name__ == "__main__":
    main()
