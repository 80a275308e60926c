"""Every row of the paper's tables as OpenRLHF flags: a recipe sets model, data and machine, an algorithm the loss.

Standard library only. Each value carries its origin and a note; text in “curly quotes” is the paper's own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from real_openrlhf.base.parsing import json_value
from real_openrlhf.recipes import shrink
from real_openrlhf.recipes.run import FlagValue, Recipe, code, own, paper

_BATCH = {
    "--rollout.batch_size": paper("128", "prompts; “We employ a global batch size of 128”"),
    "--rollout.n_samples_per_prompt": paper("8", "“with G=8 rollouts sampled per prompt”"),
    "--train.batch_size": paper("256", "samples, 32 prompts x 8: four updates per step; “(mini-batch size 32)”"),
    "--train.max_epochs": code("1", "each rollout is trained on once"),
    "--train.batching": own("whole_groups", "every method trains on the same updates of whole prompts"),
    "--train.skip_zero_gradient": own("", "rollouts without a gradient are not trained"),
}
_SAMPLING = {
    "--rollout.max_new_tokens": paper("8192", "“the maximum context length is set to 8,192 tokens”"),
    "--data.max_len": code("9216", "1,024 tokens of prompt beside the 8,192 of response"),
    "--rollout.temperature": paper("0.6", "“The sampling temperature is 0.6 for both training and inference”"),
    "--rollout.top_p": code("1.0", "in training and in-training validation; final evaluation uses 0.95"),
    "--eval.temperature": paper("0.6", "“The sampling temperature is 0.6 for both training and inference”"),
}
_OPTIMIZER = {
    "--actor.optim": paper("adam", "OpenRLHF's name for “AdamW”"),
    "--actor.adam.weight_decay": paper("0.01", "“AdamW with a weight decay of 0.01”"),
    "--actor.adam.betas": code("0.9 0.999", "OpenRLHF's default is 0.9 0.95"),
    "--actor.lr_scheduler": code("constant", "OpenRLHF's default is a cosine"),
    "--actor.lr_warmup_ratio": code("0.0", "OpenRLHF's default is 0.03"),
    "--actor.max_norm": code("1.0", "gradient clipping"),
    "--actor.entropy_coef": code("0.0", "0 only logs the entropy"),
    "--algo.advantage.estimator": own("group_norm", "no critic"),
}
_VALIDATION = {
    "--eval.n_samples_per_prompt": paper("8", "“Pass@1 on AIME 2024, averaged over 8 samples”"),
    "--eval.steps": code("20", "validate every 20 steps"),
    "--eval.at_start": code("", "validate before the first step"),
    "--eval.at_end": own("", "and after the last step"),
}
_GPU_MACHINERY = {
    "--data.input_key": own("prompt"),
    "--data.label_key": own("label"),
    "--data.apply_chat_template": own("", "the model's own chat template around the problem"),
    "--train.colocate_all": own("", "policy, reference and vLLM share every GPU in turn"),
    "--vllm.enable_sleep": own("", "vLLM gives its memory back while the policy trains"),
    "--ds.enable_sleep": own("", "optimizer states wait in host memory during generation"),
    "--vllm.tensor_parallel_size": own("1"),
    "--vllm.sync_backend": own("nccl"),
    "--vllm.gpu_memory_utilization": own("0.7"),
    "--ds.param_dtype": own("bf16"),
    "--ds.grad_accum_dtype": own("fp32", "gradients of micro-batches: in bf16 their sum is 1 % off or more"),
    "--ds.attn_implementation": own("flash_attention_torch", "PyTorch's own kernels: nothing is compiled"),
    "--ds.packing_samples": own("", "no padding tokens"),
    "--train.dynamic_batch_enable": own("", "micro-batches by tokens, not by samples"),
    "--ds.fused_logprobs": own("", "no table of tokens x vocabulary: by estimate half of a training step's memory"),
    "--train.max_tokens_per_gpu": own("36864", "four of the longest samples: 8 GB by estimate, 228 KB per token"),
    "--rollout.max_tokens_per_gpu": own("73728", "log-probs without gradients: 5 GB by estimate, 66 KB per token"),
    "--actor.gradient_checkpointing_enable": own(""),
    "--ckpt.save_steps": own("20", "a crash costs at most 20 steps; as often as validation"),
    "--ckpt.max_num": own("2", "DeepSpeed checkpoints kept"),
    "--ckpt.best_metric_key": own("none", "no extra checkpoint at each best AIME24 score: it is a test set"),
    "--logger.logging_steps": own("1"),
    "--train.seed": own("42"),
    "--rollout.seeded": own("", "one seed: the same prompts and the same noise; vLLM's GPU sampler has seeds anyway"),
}
_PAPER_RUN = {**_BATCH, **_SAMPLING, **_OPTIMIZER, **_VALIDATION, **_GPU_MACHINERY}


def _variant(
    recipe: Recipe, name: str, about: str, flags: Mapping[str, FlagValue] | None = None, **changes: Any
) -> Recipe:
    return replace(recipe, name=name, about=about, flags={**recipe.flags, **(flags or {})}, **changes)


_QWEN_1_5B = Recipe(
    name="qwen1.5b",
    about="the paper's 1.5B runs: DeepSeek-R1-Distill-Qwen-1.5B on DeepScaleR, 8 GPUs",
    model="deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    train_data="deepscaler",
    eval_data="aime24",
    flags={
        **_PAPER_RUN,
        "--actor.adam.lr": paper("2e-6", "“For the 1.5B model, we use a learning rate of 2 × 10^-6”"),
        "--train.max_steps": paper("1400", "rollout steps; “and train for 1,400 steps”"),
        "--ds.zero_stage": own("2", "the weights fit on every GPU"),
    },
)
_QWEN_7B = _variant(
    _QWEN_1_5B,
    "qwen7b",
    "the paper's 7B runs: DeepSeek-R1-Distill-Qwen-7B on DeepScaleR, 8 GPUs",
    {
        "--train.max_tokens_per_gpu": own("18432", "two of the longest samples: 9 GB by estimate, 509 KB per token"),
        "--rollout.max_tokens_per_gpu": own("36864", "log-probs without gradient: 5 GB by estimate, 142 KB per token"),
        "--actor.adam.lr": paper("1e-6", "“for the 7B model, the learning rate is 1 × 10^-6”"),
        "--train.max_steps": paper("1000", "rollout steps; “over 1,000 steps”"),
        "--ds.zero_stage": own("3"),
    },
    model="deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
)
_LORA = {
    "--ds.lora.rank": own("64", "LoRA is not in the paper"),
    "--ds.lora.alpha": own("64"),
    "--ds.zero_stage": own("2", "one rank: nothing to shard"),
    "--vllm.gpu_memory_utilization": own("0.5", "the whole 7B model stays beside vLLM"),
    "--actor.adam.lr": own("1e-5", "ten times the paper's rate, as is usual for LoRA; not in the paper"),
}

_CPU = Recipe(
    name="cpu",
    about="the whole stack on a tiny model and task, on two cores without a GPU",
    model="reverse",
    train_data="reverse",
    eval_data="reverse",
    gpus=1,
    on_cpu=True,
    flags={
        **_BATCH,
        "--rollout.batch_size": own("32", "prompts"),
        "--train.batch_size": own("64", "samples, 8 prompts x 8: four updates per step, as in the paper"),
        "--train.micro_batch_size": own("32", "samples: fits one and two ranks"),
        "--rollout.micro_batch_size": own("64"),
        "--rollout.max_new_tokens": own("14", "the task's longest answer is 13"),
        "--data.max_len": own("32"),
        "--rollout.temperature": own("1.0"),
        "--rollout.top_p": own("1.0"),
        "--eval.temperature": own("1.0"),
        **_OPTIMIZER,
        "--actor.adam.lr": own("1e-4", "a model ten thousand times smaller"),
        "--actor.max_norm": own("100", "clips nothing: 1 would clip nearly all of REAL's updates, and few of GRPO's"),
        "--train.max_steps": own("40"),
        "--rollout.seeded": own("", "runs with one seed draw the same prompts and rollouts"),
        **_VALIDATION,
        "--eval.n_samples_per_prompt": own("8"),
        "--data.input_key": own("prompt"),
        "--data.label_key": own("label"),
        "--train.colocate_all": own("", "one logical GPU for all roles"),
        "--vllm.tensor_parallel_size": own("1"),
        "--vllm.sync_backend": own("gloo"),
        "--vllm.gpu_memory_utilization": own("0.3"),
        "--vllm.enforce_eager": own("", "nothing to compile"),
        "--ds.zero_stage": own("3", "as for 7B"),
        "--ds.fused_logprobs": own("", "as on GPUs"),
        "--ds.param_dtype": own("bf16"),
        "--ds.attn_implementation": own("eager"),
        "--ckpt.save_steps": own("20"),
        "--ckpt.max_num": own("2"),
        "--ckpt.best_metric_key": own("none"),
        "--logger.logging_steps": own("1"),
        "--train.seed": own("42"),
    },
)


def _like_gpu() -> Mapping[str, FlagValue]:
    """The 7B recipe as a rehearsal shrinks it, with the tiny task's lengths, rate and norm: it shall learn."""
    changes = shrink.changes(
        lambda flag: json_value(_QWEN_7B.flags[flag].words) if flag in _QWEN_7B.flags else None, 18, tokens=14
    )
    flags = {**_QWEN_7B.flags, **{flag: _CPU.flags[flag] for flag in ("--actor.adam.lr", "--actor.max_norm")}}
    for flag, after, why in changes:
        flags.pop(flag, None)
        if after is not None and after != shrink.FOLLOWS and not flag.startswith("--actor.num_"):
            flags[flag] = own(after, why)
    return flags


RECIPES = {
    recipe.name: recipe
    for recipe in (
        _CPU,
        replace(
            _CPU,
            name="cpu-like-gpu",
            about="three steps of qwen7b as --rehearse shrinks it: packing, token budgets, recomputation",
            flags=_like_gpu(),
        ),
        _QWEN_1_5B,
        _QWEN_7B,
        _variant(
            _QWEN_1_5B,
            "qwen1.5b-dapo17k",
            "the paper's second data set: the 1.5B model on DAPO-Math-17k",
            train_data="dapo17k",
        ),
        _variant(_QWEN_1_5B, "qwen1.5b-1gpu", "the 1.5B run on one 80 GB GPU: the same updates", gpus=1),
        _variant(
            _QWEN_1_5B,
            "lora-24gb",
            "the 1.5B model with LoRA adapters on one GPU of 24 GB, with responses of at most 4,096 tokens",
            {
                **_LORA,
                "--rollout.max_new_tokens": own("4096", "half of the paper's: a GPU of 24 GB holds two of them"),
                "--data.max_len": own("5120"),
                "--train.max_tokens_per_gpu": own("5120", "one of the longest samples"),
                "--rollout.max_tokens_per_gpu": own("10240"),
                "--vllm.gpu_memory_utilization": own("0.5", "of 24 GB; it sleeps while the policy trains"),
                "--actor.adam.lr": own("2e-5", "ten times the paper's rate, as is usual for LoRA; not in the paper"),
            },
            gpus=1,
            gpu_gb=24.0,
        ),
        _variant(_QWEN_7B, "qwen7b-lora", "the 7B model with LoRA adapters on one 80 GB GPU", _LORA, gpus=1),
    )
}
