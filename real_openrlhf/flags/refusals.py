"""Refused flags: those with which a run would spoil its result silently, crash late or wait for ever.

Each message has the flag, the reason and what to type instead. What fails loudly in the first seconds is not here.
"""

import math
from collections.abc import Iterator
from functools import reduce
from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import against_sampler
from real_openrlhf.flags.derived import ESTIMATORS
from real_openrlhf.flags.loss_refusals import objective_problems, unread_by_real
from real_openrlhf.flags.rules import VALUED, wrong_value


def problems(args: SimpleNamespace) -> Iterator[str]:
    """All objections to complete arguments."""
    yield from _run_problems(args)
    if args.derived.whole_groups:
        yield from _whole_group_problems(args)


def _run_problems(args: SimpleNamespace) -> Iterator[str]:
    """With any loss."""
    train, ds = args.train, args.ds
    if train.async_enable and train.colocate_all and args.vllm.enable_sleep:
        yield (
            "--vllm.enable_sleep: with --train.async_enable the engines draw while the policy trains, so they cannot "
            "sleep. Leave it out (--no-vllm.enable_sleep), and count GPUs of their own for them: on eight, --gpus 4"
        )
    ranks, parallel = args.derived.layout.ranks, args.vllm.tensor_parallel_size
    if args.derived.layout.colocated and parallel > ranks:
        yield (
            f"--vllm.tensor_parallel_size {parallel} needs {parallel} GPUs of the policy, which has {ranks}. Use "
            f"{ranks} at most, or more --actor.num_gpus_per_node"
        )
    if train.enable_ema and (ds.zero_stage == 3 or args.derived.whole_groups):
        yield (
            "--train.enable_ema: with --ds.zero_stage 3 OpenRLHF 0.11.2 saves the untrained model (its pull request "
            "1357), and the trainer of --train.batching whole_groups makes no average. Leave it out"
        )
    if train.agent_func_path and args.rollout.seeded:
        yield (
            "--rollout.seeded gives all turns of --train.agent_func_path the same random numbers. Leave it out "
            "(recipes: --no-rollout.seeded)"
        )
    if ds.ring_attn_size * ds.tensor_parallel_size > args.derived.layout.ranks:
        yield (
            f"--ds.ring_attn_size {ds.ring_attn_size} x --ds.tensor_parallel_size {ds.tensor_parallel_size} need as "
            "many GPUs of the policy, and it has fewer. Use 1 and 1, or more GPUs (--actor.num_gpus_per_node)"
        )
    if ds.param_dtype != "bf16" and args.vllm.num_engines:
        yield (
            f"--ds.param_dtype {ds.param_dtype}: OpenRLHF starts vLLM in bf16, which takes no other weights after the "
            "first step. Use bf16"
        )
    if args.derived.loss != "upstream" and not args.derived.whole_groups:
        yield "--train.batching upstream splits prompts, which REAL compares whole. Use --train.batching whole_groups"
    if args.actor.optim == "muon" and ds.zero_stage == 3:
        yield "--actor.optim muon does not start with --ds.zero_stage 3 in DeepSpeed. Use --ds.zero_stage 2"
    elif args.actor.optim == "muon" and args.actor.max_norm > 0:
        yield (
            f"--actor.max_norm {args.actor.max_norm:g}: with --actor.optim muon DeepSpeed takes the norm of Muon's "
            "update, which the gradient's size does not change, so it would scale all updates down. Use "
            "--actor.max_norm 0"
        )
    if ds.lora.target_modules == ["all-linear"]:
        yield "--ds.lora.target_modules all-linear is the default, and typed it is no module's name. Leave it out"
    buffer, most = args.reward.overlong_buffer_len, args.rollout.max_new_tokens or args.data.max_len
    if buffer is not None and buffer > most:
        yield f"--reward.overlong_buffer_len {buffer:g} is above the {most} tokens of a response. Give fewer"
    advantage = args.algo.advantage
    if advantage.is_correction_level != "off":
        gating, (*lower, _) = advantage.is_correction_gating, advantage.is_correction_threshold
        by_tokens = gating == "ratio" and advantage.is_correction_level == "token"
        if advantage.is_correction_mode == "clip" and not by_tokens:
            yield (
                "--algo.advantage.is_correction_mode clip is of the ratios of tokens. Use "
                "--algo.advantage.is_correction_level token with --algo.advantage.is_correction_gating ratio"
            )
        if gating != "ratio" and any(lower):
            yield (
                f"--algo.advantage.is_correction_gating {gating} has an upper bound only. Give "
                "--algo.advantage.is_correction_threshold one number, such as 0.1"
            )
    if ds.fused_logprobs and ds.tensor_parallel_size > 1:
        yield "--ds.fused_logprobs needs the head in one piece. Use --ds.tensor_parallel_size 1, or leave it out"
    # each rank would attend to its own part of a sequence only, silently; whole groups refuse ring attention anyway
    own_attention = ds.attn_implementation == "flash_attention_torch"
    if own_attention and ds.ring_attn_size > 1 and not args.derived.whole_groups:
        yield (
            "--ds.attn_implementation flash_attention_torch does not go with --ds.ring_attn_size. Use "
            "flash_attention_2, which ring attention needs"
        )


def notes(args: SimpleNamespace) -> Iterator[str]:
    """What a command written for another method brings into REAL, or costs it; printed, and the run goes on."""
    kl, real = args.algo.kl, args.algo.real
    plain = real.objective == "real" and args.derived.score and not against_sampler(args.derived.score)
    if args.train.async_enable and plain:
        yield (
            "--train.async_enable: with four batches waiting plain REAL reached 0.18 less pass@1 than GRPO with "
            "importance correction. With --algo.real.set score=log_ratio_rollout --algo.real.tau 0.1 and twice the "
            "learning rate it was equivalent"
        )
    if args.derived.loss != "upstream" and kl.init_coef > 0:
        yield (
            f"--algo.kl.init_coef {kl.init_coef:g} adds a KL loss and a reference model to REAL, which has neither in "
            "the paper. Leave it and --algo.kl.use_loss out to train as the paper does"
        )


def _whole_group_problems(args: SimpleNamespace) -> Iterator[str]:
    """With `--train.batching whole_groups`, for every method, then for its loss."""
    ds, kl = args.ds, args.algo.kl
    if not args.reward.remote_url and not args.train.agent_func_path:
        yield (
            "labels are the `scores` of a reward function, and there is none. Give --reward.remote_url FILE.py, for "
            "example real_openrlhf/rewards/math_reward.py (a reward model's scalar is no label)"
        )
    wrong = [*_values(args)]
    yield from wrong or _batches(args)
    if (estimator := args.algo.advantage.estimator) not in ESTIMATORS:
        yield (
            f"--algo.advantage.estimator {estimator}: --train.batching whole_groups trains no critic, and takes a "
            f"prompt's own baseline. Use {' or '.join(ESTIMATORS)}, or --train.batching upstream"
        )
    if kl.init_coef > 0 and not kl.use_loss:
        yield (
            f"--algo.kl.init_coef {kl.init_coef:g} without --algo.kl.use_loss puts the KL into the reward, which "
            "--train.batching whole_groups does not do. Use --algo.kl.init_coef 0 (the paper), or add "
            "--algo.kl.use_loss --algo.kl.estimator k3"
        )
    (low, high), threshold = args.algo.dynamic_filtering_range, args.algo.real.label_threshold
    scores = (0, 1) if args.derived.loss != "upstream" and not args.derived.any_reward else (low, high)
    outside = low >= scores[1] or high <= scores[0] if threshold is None else not low <= threshold < high
    if args.algo.dynamic_filtering_enable and outside:
        yield (
            f"--algo.dynamic_filtering_range {low:g} {high:g} is of a prompt's mean score, and nearly all prompts "
            f"would be dropped: a score is correct above {args.derived.threshold:g}. Give a range of your scores"
        )
    if args.train.max_epochs != 1:
        yield (
            f"--train.max_epochs {args.train.max_epochs}: --train.batching whole_groups trains each rollout once, as "
            "the paper does. Use 1, or a smaller --train.batch_size for more updates"
        )
    if ds.zero_stage not in (1, 2, 3):
        yield (
            f"--ds.zero_stage {ds.zero_stage}: --train.batching whole_groups needs ZeRO stage 1, 2 or 3. Use "
            "--ds.zero_stage 2"
        )
    if ds.ring_attn_size > 1 or args.data.max_images_per_prompt > 0:
        yield (
            "--train.batching whole_groups does not support ring attention or image inputs. Use --ds.ring_attn_size 1 "
            "and text prompts"
        )
    if args.derived.loss != "upstream":
        yield from unread_by_real(args)
        yield from objective_problems(args)


def batch_problems(args: SimpleNamespace) -> Iterator[str]:
    """A rollout must divide into equal updates of whole groups."""
    prompts, group, batch = args.rollout.batch_size, args.rollout.n_samples_per_prompt, args.train.batch_size
    fitting = [size for size in range(group, prompts * group + 1, group) if prompts * group % size == 0]
    if fitting and batch not in fitting:
        ranks, micro = max(args.derived.layout.data_parallel, 1), args.train.micro_batch_size
        divided = [size for size in fitting if size % ranks == 0] or fitting
        best = min(divided, key=lambda size: abs(size - batch))
        fits = micro if args.train.dynamic_batch_enable else math.gcd(best // ranks, micro)
        yield (
            f"--train.batch_size {batch} does not cut a rollout of {prompts} prompts x {group} into equal updates of "
            f"whole groups. Give {best}{f' and --train.micro_batch_size {fits}' * (fits != micro)}."
        )


def _batches(args: SimpleNamespace) -> Iterator[str]:
    train, ranks, micro = args.train, args.derived.layout.data_parallel, args.train.micro_batch_size
    yield from batch_problems(args)
    if not train.dynamic_batch_enable and train.batch_size % (micro * ranks):
        yield (
            f"--train.batch_size {train.batch_size} is not a multiple of --train.micro_batch_size {micro} x {ranks} "
            "ranks. Change one of them, or use --train.dynamic_batch_enable"
        )
    if args.rollout.n_samples_per_prompt < 2:
        yield (
            "--rollout.n_samples_per_prompt 1: --train.batching whole_groups compares a prompt's responses. Use 8, as "
            "the paper does, or --train.batching upstream"
        )


def _values(args: SimpleNamespace) -> Iterator[str]:
    for flag in VALUED:
        value = reduce(getattr, flag[2:].split("."), args)
        words = value if isinstance(value, list | tuple) else [value]
        if value is not None and (wrong := wrong_value(flag, words)):
            yield wrong


def size_problems(args: SimpleNamespace) -> Iterator[str]:
    """A micro-batch by tokens must hold the longest sample; and OpenRLHF would drop the rest of an uneven rollout.

    Before a start only: as a command of its own OpenRLHF goes on.
    """
    if not args.derived.whole_groups:  # else `problems` has it
        yield from batch_problems(args)
    longest, response = args.data.max_len, args.rollout.max_new_tokens or 0
    if response >= longest:
        yield (
            f"--rollout.max_new_tokens {response} is not below --data.max_len {longest}, which is of prompt and "
            "response: no prompt would fit. Change one of them."
        )
    steps, every = args.train.max_steps, args.logger.logging_steps
    if 0 < steps < every:
        yield f"--logger.logging_steps {every} logs nothing of {steps} steps. Use --logger.logging_steps 1."
    budgets = {"--train": args.train.max_tokens_per_gpu, "--rollout": args.rollout.max_tokens_per_gpu}
    for flag, most in budgets.items():
        if args.train.dynamic_batch_enable and most and most < longest:
            cannot = f"cannot hold one sample of --data.max_len {longest}. Give that or more."
            yield f"{flag}.max_tokens_per_gpu {most} {cannot}"


def gpu_problems(args: SimpleNamespace) -> Iterator[str]:
    """Flags with which a run on CPU would fail half a minute after its start."""
    vllm, attention = args.vllm, args.ds.attn_implementation
    needs = {"--vllm.enable_sleep": vllm.enable_sleep, "--vllm.sync_backend nccl": vllm.sync_backend == "nccl"}
    needs[f"--ds.attn_implementation {attention}"] = attention in ("flash_attention_2", "flash_attention_3")
    for flag in (flag for flag, given in needs.items() if given):
        it = "--ds.packing_samples" if "attn" in flag and args.ds.packing_samples else "it"
        other = "take a recipe for GPUs: --recipe qwen1.5b-1gpu"
        yield f"{flag} needs a GPU, and this recipe is for CPU. Leave {it} out, or {other}."
