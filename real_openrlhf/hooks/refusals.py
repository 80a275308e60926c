"""Refused combinations of flags: each message has the defect, the reason and the fix, before anything is loaded."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import reduce
from types import SimpleNamespace

from real_openrlhf.algorithm.formulas import (
    OF_THE_BATCH,
    TokenLoss,
    against_sampler,
    find,
    given_settings,
    readers,
)
from real_openrlhf.base.user_files import file_of
from real_openrlhf.hooks.settings import ranks_of

# Numbers that OpenRLHF's parser takes, and with which a run would crash, wait for ever or train on nonsense.
OFF, OR_OFF = -1, ("--eval.steps", "--ckpt.save_steps")
_FLAGS = {  # (lowest number, highest number, whether the lowest itself is allowed): flags
    (1.0, math.inf, True): """
        --actor.num_nodes --actor.num_gpus_per_node --vllm.num_engines --vllm.tensor_parallel_size
        --rollout.batch_size --rollout.n_samples_per_prompt --rollout.micro_batch_size --data.max_len
        --train.batch_size --train.micro_batch_size --train.num_episodes
        --eval.n_samples_per_prompt --logger.logging_steps --ckpt.max_num --rollout.max_new_tokens
        --data.max_samples --train.max_tokens_per_gpu --rollout.max_tokens_per_gpu --train.async_queue_size
        --ds.ring_attn_size --ds.tensor_parallel_size --algo.kl.horizon --rollout.vllm_generate_batch_size
        --eval.steps --ckpt.save_steps""",
    (0.0, math.inf, True): """
        --ds.lora.rank --data.dataloader_num_workers --actor.adam.weight_decay --actor.max_norm --eval.temperature
        --train.watchdog_minutes --algo.kl.init_coef --algo.real.kl_old_coef""",
    (0.0, math.inf, False): """
        --actor.adam.lr --actor.adam.eps --actor.eps_clip --actor.eps_clip_low_high --rollout.temperature
        --algo.real.tau --algo.real.tis_cap""",
    (0.0, 1.0, True): """
        --actor.adam.betas --actor.lr_warmup_ratio --actor.min_lr_ratio --algo.advantage.gamma
        --algo.advantage.lambd --train.ema_beta --ds.lora.dropout""",
    (0.0, 1.0, False): "--rollout.top_p --vllm.gpu_memory_utilization",
    (0.0, 2.0**31 - 1, True): "--train.seed",  # numpy takes 32 bits, and ranks and engines add their numbers
}
BOUNDS = {flag: bounds for bounds, flags in _FLAGS.items() for flag in flags.split()}


def out_of_bounds(flag: str, words: Sequence[object]) -> str | None:
    """What is wrong with the numbers of a flag in BOUNDS, or None."""
    low, high, with_low = BOUNDS[flag]
    for number in map(float, map(str, words)):
        good = math.isfinite(number) and low <= number <= high and (with_low or number > low)
        if not good and not (flag in OR_OFF and number == OFF):
            above = f"{low:g} or more" if with_low else f"more than {low:g}"
            most = ", and no infinity" * math.isinf(number) if math.isinf(high) else f", and {high:.12g} at most"
            return f"{flag} {' '.join(map(str, words))}: give {above}{most}{', or -1 for never' * (flag in OR_OFF)}."
    return None


def run_problems(args: SimpleNamespace) -> Iterator[str]:
    """Refusals with any loss."""
    train, ds = args.train, args.ds
    if train.async_enable and train.colocate_all and args.vllm.enable_sleep:
        yield (
            "--vllm.enable_sleep: with --train.async_enable the engines draw while the policy trains, so they cannot "
            "sleep. Leave it out (--no-vllm.enable_sleep), and count GPUs of their own for them: on eight, --gpus 4"
        )
    if train.enable_ema and (ds.zero_stage == 3 or train.batching == "whole_groups"):
        yield (
            "--train.enable_ema: with --ds.zero_stage 3 OpenRLHF 0.11.2 saves the untrained model (its pull request "
            "1357), and the trainer of --train.batching whole_groups makes no average. Leave it out"
        )
    if train.batching == "upstream" and args.rollout.mismatch != "off":
        yield (
            f"--rollout.mismatch {args.rollout.mismatch} is measured by the trainer of --train.batching "
            "whole_groups. Use that, or leave --rollout.mismatch out"
        )
    if train.agent_func_path and args.rollout.seeded:
        yield (
            "--rollout.seeded gives all turns of --train.agent_func_path the same random numbers. Leave it out "
            "(recipes: --no-rollout.seeded)"
        )
    if ds.param_dtype != "bf16" and args.vllm.num_engines:
        yield (
            f"--ds.param_dtype {ds.param_dtype}: OpenRLHF starts vLLM in bf16, which takes no other weights after the "
            "first step. Use bf16"
        )
    if ds.fused_logprobs and ds.tensor_parallel_size > 1:
        yield "--ds.fused_logprobs needs the head in one piece. Use --ds.tensor_parallel_size 1, or leave it out"
    # each rank would attend to its own part of a sequence only, silently; whole groups refuse ring attention anyway
    own_attention = ds.attn_implementation == "flash_attention_torch"
    if own_attention and ds.ring_attn_size > 1 and args.train.batching != "whole_groups":
        yield (
            "--ds.attn_implementation flash_attention_torch does not go with --ds.ring_attn_size. Use "
            "flash_attention_2, which ring attention needs"
        )


def notes(args: SimpleNamespace) -> Iterator[str]:
    """What a command written for another method brings into REAL; printed, and the run goes on."""
    kl = args.algo.kl
    if args.actor.policy_loss_type == "real" and kl.init_coef > 0:
        yield (
            f"--algo.kl.init_coef {kl.init_coef:g} adds a KL loss and a reference model to REAL, which has neither in "
            "the paper. Leave it and --algo.kl.use_loss out to train as the paper does"
        )


def whole_group_problems(args: SimpleNamespace) -> Iterator[str]:
    """Refusals with `--train.batching whole_groups`, for every method, then for its loss."""
    for topic in (_labels, _batches, _machinery, _numbers):
        yield from topic(args)
    if args.actor.policy_loss_type == "real":
        yield from weighted_problems(args) if _of_tokens(args) else _ppo(args)
        yield from _objective(args)


def weighted_problems(args: SimpleNamespace) -> Iterator[str]:
    """Refuse parts of upstream's loss that REAL and losses of tokens do not have."""
    loss, level = args.actor.policy_loss_type, args.algo.advantage.is_correction_level
    if args.actor.dual_clip is not None:
        yield f"--actor.dual_clip clips PPO's surrogate, and --actor.policy_loss_type {loss} has none. Leave it out"
    if level != "off":
        yield (
            f"--algo.advantage.is_correction_level {level} reweights PPO's token ratios, and --actor.policy_loss_type "
            f"{loss} does not use them. Use --algo.advantage.is_correction_level off"
        )


def _labels(args: SimpleNamespace) -> Iterator[str]:
    if not args.reward.remote_url and not args.train.agent_func_path:
        yield (
            "labels are the `scores` of a reward function, and there is none. Give --reward.remote_url FILE.py, for "
            "example real_openrlhf/rewards/math_reward.py (a reward model's scalar is no label)"
        )


def _of_tokens(args: SimpleNamespace) -> bool:
    """Whether advantages are made, and no scores."""
    with contextlib.suppress(ValueError):  # `_objective` reports it
        return args.actor.policy_loss_type != "real" or find(args.algo.real.objective).of_tokens
    return False


def _two_sides(args: SimpleNamespace) -> bool:
    """Whether a group with equal labels trains nothing, as with advantages."""
    if args.actor.policy_loss_type != "real":
        return True
    try:
        return args.algo.real.uniform_groups == "zero_loss" and find(args.algo.real.objective).two_sides
    except ValueError:  # `_objective` reports it
        return False


def batch_problems(args: SimpleNamespace) -> Iterator[str]:
    """A rollout must divide into equal updates of whole groups."""
    prompts, group, batch = args.rollout.batch_size, args.rollout.n_samples_per_prompt, args.train.batch_size
    fitting = [size for size in range(group, prompts * group + 1, group) if prompts * group % size == 0]
    if fitting and batch not in fitting:
        yield (
            f"--train.batch_size {batch} does not cut a rollout of {prompts} prompts x {group} into equal updates of "
            f"whole groups. Give {min(fitting, key=lambda size: abs(size - batch))}."
        )


def _batches(args: SimpleNamespace) -> Iterator[str]:
    train, ranks, micro = args.train, ranks_of(args), args.train.micro_batch_size
    if min(micro, args.rollout.n_samples_per_prompt, train.batch_size, ranks) < 1:
        return  # `_numbers` and `run_problems` report it
    yield from batch_problems(args)
    if not train.dynamic_batch_enable and train.batch_size % (micro * ranks):
        yield (
            f"--train.batch_size {train.batch_size} is not a multiple of --train.micro_batch_size {micro} x {ranks} "
            "ranks. Change one of them, or use --train.dynamic_batch_enable"
        )
    if args.rollout.n_samples_per_prompt < 2:
        yield from _alone(args)


def _alone(args: SimpleNamespace) -> Iterator[str]:
    """Refuse one response a prompt where the method compares a prompt's responses."""
    where = f"--rollout.n_samples_per_prompt {args.rollout.n_samples_per_prompt}: "
    if not _of_tokens(args) and _two_sides(args):
        yield (
            f"{where}--algo.real.uniform_groups zero_loss leaves out a group of one side, and one response is one "
            "side. Use 8, as the paper does, or --algo.real.uniform_groups keep"
        )
    elif _of_tokens(args) and args.algo.advantage.estimator not in OF_THE_BATCH:
        yield (
            f"{where}--algo.advantage.estimator {args.algo.advantage.estimator} compares a prompt's responses. Use "
            f"{' or '.join(OF_THE_BATCH)}, or 8 responses"
        )


def _ppo(args: SimpleNamespace) -> Iterator[str]:
    """Refuse parts of PPO that REAL does not use, and what would change a reward or a score after labels are made."""
    yield from weighted_problems(args)
    for flag in ("overlong_buffer_len", "stop_properly_penalty_coef"):
        value = getattr(args.reward, flag)
        if value is not None:
            yield (
                f"--reward.{flag} {value} changes a reward by its length, and REAL's labels are made before that. "
                "Leave it out; --algo.real.truncated says what a rollout cut at the limit counts as"
            )
    if args.ds.lora.dropout > 0:
        yield (
            f"--ds.lora.dropout {args.ds.lora.dropout:g} makes two forwards of one rollout differ, so its score would "
            "not be the one it is weighed by. Use --ds.lora.dropout 0"
        )


def _machinery(args: SimpleNamespace) -> Iterator[str]:
    ds = args.ds
    if args.algo.advantage.estimator == "gae":
        yield (
            "--train.batching whole_groups trains no critic, and --algo.advantage.estimator gae starts one. Use "
            "another estimator (group_norm), or --train.batching upstream"
        )
    if args.algo.kl.init_coef > 0 and not args.algo.kl.use_loss:
        yield (
            f"--algo.kl.init_coef {args.algo.kl.init_coef:g} without --algo.kl.use_loss puts the KL into the reward, "
            "which --train.batching whole_groups does not do. Use --algo.kl.init_coef 0 (the paper), or add "
            "--algo.kl.use_loss --algo.kl.estimator k3"
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


def _numbers(args: SimpleNamespace) -> Iterator[str]:
    for flag in BOUNDS:
        value = reduce(getattr, flag[2:].split("."), args)
        if wrong := out_of_bounds(flag, value if isinstance(value, list | tuple) else [value] * (value is not None)):
            yield wrong


def _objective(args: SimpleNamespace) -> Iterator[str]:
    """Refuse an objective that does not exist, cannot be trained with, or does not read a flag that is set."""
    real = args.algo.real
    try:
        objective = find(real.objective)
    except ValueError as error:
        yield f"--algo.real.objective {real.objective}: {error}"
        return
    if real.tau is not None and "tau" not in objective.settings:
        reads = " ".join(("--algo.real.set", *objective.settings)) if objective.settings else "no setting"
        yield (
            f"--algo.real.tau {real.tau} is not read by --algo.real.objective {real.objective}, which reads {reads}. "
            f"Leave it out, or use an objective that reads it: {', '.join(readers('tau'))}"
        )
    try:
        given = given_settings(real)
        own = objective.constants({name: value for name, value in given.items() if name != "tau"})
    except ValueError as error:
        yield f"--algo.real.set {' '.join(real.set)}: {error}"
        return
    if isinstance(objective, TokenLoss) and args.actor.loss_agg_mode not in ("token-mean", objective.mean):
        yield (
            f"--actor.loss_agg_mode {args.actor.loss_agg_mode}: {real.objective} declares the mean {objective.mean}. "
            "Leave the flag out, or change the file"
        )
    score, clip = str(own.get("score", objective.score)), real.tis_cap
    if clip is not None and (objective.of_tokens or against_sampler(score)):
        has = "has `group.gap`" if objective.of_tokens else f"scores by {score}, which is against vLLM already"
        yield f"--algo.real.tis_cap {clip:g}: {real.objective} {has}. Leave it out"
    elif clip is not None or against_sampler(score):
        what = f"the score {score}" if clip is None else f"--algo.real.tis_cap {clip:g}"
        if args.rollout.mismatch == "off":
            yield f"{what} is made of vLLM's log-probabilities. Leave --rollout.mismatch off out"
        if args.rollout.top_p < 1:
            yield (
                f"{what} needs the sampler's own distribution, and --rollout.top_p {args.rollout.top_p:g} cuts and "
                "rescales it. Use --rollout.top_p 1, or leave this out"
            )
    if file_of(real.objective):
        from real_openrlhf.algorithm import validate_objective  # imports torch, only for a formula of the user's own
        from real_openrlhf.algorithm.objective import ObjectiveSettings

        with contextlib.suppress(ValueError):  # a bad setting, which `_numbers` reports
            sampled = args.rollout.mismatch != "off"
            if wrong := validate_objective.objective_problem(
                ObjectiveSettings(objective, own=given), args.train.max_steps, sampled
            ):
                yield f"--algo.real.objective {real.objective}: {wrong}"
