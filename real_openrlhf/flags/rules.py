"""The values that a flag takes, and the runs that read it.

With other values a run crashes late, waits for ever, or trains something else in silence. A flag that the user types
and its run does not read is refused, with the reader's condition; `compare` trains a method once where a grid's flag
is not its own. A flag without a row takes any finite number, and every run reads it: `fast/test_rules.py` lists those.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

NUMBERS: tuple[tuple[str, Callable[[float], bool], str], ...] = (  # in words, and as a test, of these flags
    ("1 or more", lambda number: number >= 1, """
        --actor.num_nodes --actor.num_gpus_per_node --vllm.num_engines --vllm.tensor_parallel_size
        --rollout.batch_size --rollout.n_samples_per_prompt --rollout.micro_batch_size --rollout.max_new_tokens
        --train.batch_size --train.micro_batch_size --train.num_episodes --train.max_epochs --train.async_queue_size
        --train.max_tokens_per_gpu --rollout.max_tokens_per_gpu --data.max_len --data.max_samples
        --eval.n_samples_per_prompt --ds.ring_attn_size --ds.tensor_parallel_size --logger.logging_steps
        --ckpt.max_num --algo.kl.horizon --algo.real.tis_cap"""),
    ("a number above 1", lambda number: number > 1, "--actor.dual_clip"),
    ("1 or more, or -1 for never", lambda number: number >= 1 or number == -1, "--eval.steps --ckpt.save_steps"),
    ("a number above 0", lambda number: number > 0, """
        --actor.adam.lr --actor.adam.eps --actor.eps_clip --actor.eps_clip_low_high --actor.muon.lr
        --algo.kl.target --ds.lora.alpha --reward.overlong_buffer_len"""),
    ("a number from 0.001 to 1000", lambda number: 0.001 <= number <= 1000, "--algo.real.tau"),
    ("0.01 or more: vLLM draws no colder", lambda number: number >= 0.01, "--rollout.temperature"),
    ("0 or more", lambda number: number >= 0, """
        --actor.adam.weight_decay --actor.aux_loss_coef --actor.max_norm --eval.temperature --algo.kl.init_coef
        --algo.real.kl_old_coef --ds.lora.rank --train.watchdog_minutes --reward.overlong_penalty_factor"""),
    ("a factor of at most 1, or the reward itself below 0", lambda number: number <= 1,
     "--reward.stop_properly_penalty_coef"),
    ("a number from 0 to 1", lambda number: 0 <= number <= 1, """
        --actor.lr_warmup_ratio --actor.min_lr_ratio --algo.advantage.gamma --algo.advantage.lambd
        --train.ema_beta"""),
    ("0 or more, below 1", lambda number: 0 <= number < 1, "--actor.adam.betas --ds.lora.dropout"),
    ("a number above 0, at most 1", lambda number: 0 < number <= 1, "--rollout.top_p --vllm.gpu_memory_utilization"),
    ("from 0 to 2147483647", lambda number: 0 <= number < 2**31, "--train.seed"),  # of a signed 32-bit number
    ("a finite number", lambda number: True, "--algo.real.label_threshold"),
)  # fmt: skip
BOUNDS = {flag: (what, holds) for what, holds, flags in NUMBERS for flag in flags.split()}


LOW_HIGH = ("--reward.clip_range", "--algo.advantage.is_correction_threshold", "--algo.dynamic_filtering_range")
SCHEDULERS = """linear cosine cosine_with_restarts polynomial constant constant_with_warmup inverse_sqrt
    cosine_with_min_lr cosine_warmup_with_min_lr"""  # of transformers', those without an argument of their own
CHOICES = {  # where OpenRLHF's parser takes any word
    "--actor.lr_scheduler": SCHEDULERS,
    "--critic.lr_scheduler": SCHEDULERS,
    "--ds.grad_accum_dtype": "fp32 bf16 fp16",
    "--ds.attn_implementation": "eager sdpa flex_attention flash_attention_torch " + " ".join(
        f"flash_attention_{version}" for version in (2, 3, 4)),
    "--vllm.sync_backend": "nccl gloo",
}  # fmt: skip
VALUED = (*BOUNDS, *LOW_HIGH, *CHOICES)


def wrong_value(flag: str, words: Sequence[object]) -> str | None:
    """What is wrong with the numbers or the word of a flag, or None."""
    typed = f"{flag} {' '.join(map(str, words))}"
    if flag in CHOICES:
        kernel = flag == "--ds.attn_implementation" and "/" in str(words[0])  # of the hub, OWNER/NAME
        known = [*CHOICES[flag].split()]
        return None if words[0] in known or kernel else f"{typed}: choose one of {', '.join(known)}."
    what, holds = BOUNDS.get(flag, ("a finite number", math.isfinite))
    numbers = [*map(float, map(str, words))]
    if not all(math.isfinite(number) and holds(number) for number in numbers):
        return f"{typed}: give {what}."
    rises = flag not in LOW_HIGH or numbers == sorted({*numbers})
    return None if rises else f"{typed}: give the lower number first, then the higher one."


Reads = Callable[[SimpleNamespace], object]


def _ours(args: SimpleNamespace) -> bool:
    return args.derived.loss != "upstream"


def _of_scores(args: SimpleNamespace) -> bool:
    return args.derived.loss == "scores"


def _estimates(*names: str) -> Reads:
    return lambda args: not _of_scores(args) and args.algo.advantage.estimator in names


def _clips_evenly(args: SimpleNamespace) -> bool:
    both = (args.actor.eps_clip,) * 2  # as OpenRLHF fills in a missing --actor.eps_clip_low_high
    return not _ours(args) and tuple(args.actor.eps_clip_low_high or both) == both


# flags (`--critic.` stands for all that begin so), what they need, and whether complete arguments have it
READERS: tuple[tuple[str, str, Reads], ...] = (
    ("--algo.real.objective --algo.real.set --algo.real.tau", "--actor.policy_loss_type real (--algo real)", _ours),
    ("--algo.real.uniform_groups", "an objective over scores (--algo real), without --algo.dynamic_filtering_enable",
     lambda args: _of_scores(args) and not args.algo.dynamic_filtering_enable),
    ("--algo.real.tis_cap --algo.real.max_live_micro_batches", "an objective over scores (--algo real)", _of_scores),
    ("--algo.real.kl_old_coef --algo.real.truncated --train.skip_zero_gradient --rollout.mismatch",
     "--train.batching whole_groups", lambda args: args.derived.whole_groups),
    ("--algo.advantage.estimator --reward.clip_range", "a loss of tokens, which has advantages (--algo grpo)",
     lambda args: not _of_scores(args)),
    ("--algo.advantage.gamma", "--algo.advantage.estimator gae or reinforce", _estimates("gae", "reinforce")),
    ("--algo.advantage.no_std_norm", "--algo.advantage.estimator gae, reinforce or reinforce_baseline",
     _estimates("gae", "reinforce", "reinforce_baseline")),
    ("--actor.eps_clip_low_high", "--actor.policy_loss_type ppo or gspo", lambda args: not _ours(args)),
    ("--actor.eps_clip", "ppo or gspo with --no-actor.eps_clip_low_high", _clips_evenly),
    ("--actor.loss_agg_mode", "--actor.policy_loss_type ppo, or a loss of tokens of your own",
     lambda args: not _of_scores(args) and args.actor.policy_loss_type != "gspo"),
    ("--algo.advantage.is_correction_mode --algo.advantage.is_correction_gating "
     "--algo.advantage.is_correction_threshold", "ppo with --algo.advantage.is_correction_level token or seq",
     lambda args: args.actor.policy_loss_type == "ppo" and args.algo.advantage.is_correction_level != "off"),
    ("--algo.kl.use_loss --algo.kl.target --algo.kl.estimator", "--algo.kl.init_coef above 0",
     lambda args: args.algo.kl.init_coef > 0),
    ("--algo.kl.unbiased_gradient", "--algo.kl.use_loss with --algo.kl.init_coef above 0",
     lambda args: args.derived.kl_in_loss),
    ("--algo.kl.horizon", "--algo.kl.target", lambda args: args.algo.kl.target),
    ("--ref.offload", "a reference model, and --ds.zero_stage 3",
     lambda args: args.derived.reference and args.ds.zero_stage == 3),
    ("--train.colocate_actor_ref --ref.", "a reference model: --algo.kl.init_coef above 0, or --algo trpa",
     lambda args: args.derived.reference),
    ("--critic. --algo.advantage.lambd", "--algo.advantage.estimator gae",
     lambda args: args.critic.model_name_or_path),
    *(
        (f"--{role}.{flag}", f"--{role}.{what}", lambda args, role=role, reads=reads: reads(getattr(args, role)))
        for role in ("actor", "critic")
        for flag, what, reads in (
            ("lr_warmup_ratio", "lr_scheduler other than constant, such as constant_with_warmup",
             lambda its: its.lr_scheduler != "constant"),
            ("min_lr_ratio", "lr_scheduler cosine_with_min_lr or cosine_warmup_with_min_lr",
             lambda its: its.lr_scheduler.endswith("_with_min_lr")),
            ("muon.", "optim muon", lambda its: its.optim == "muon"),
        )
    ),
    ("--ds.lora.alpha --ds.lora.dropout --ds.lora.target_modules", "--ds.lora.rank above 0",
     lambda args: args.ds.lora.rank),
    ("--train.max_tokens_per_gpu --rollout.max_tokens_per_gpu", "--train.dynamic_batch_enable",
     lambda args: args.train.dynamic_batch_enable),
    ("--train.micro_batch_size --rollout.micro_batch_size",
     "no --train.dynamic_batch_enable, with which --train.max_tokens_per_gpu and --rollout.max_tokens_per_gpu count",
     lambda args: not args.train.dynamic_batch_enable),
    ("--train.async_queue_size", "--train.async_enable", lambda args: args.train.async_enable),
    ("--vllm.enable_sleep", "--train.colocate_all", lambda args: args.train.colocate_all),
    ("--ckpt.disable_ds --ckpt.max_num --ckpt.max_mem --ckpt.save_hf",
     "--ckpt.save_steps above 0, or --eval.dataset with --ckpt.best_metric_key",
     lambda args: args.ckpt.save_steps > 0 or (args.eval.dataset and args.ckpt.best_metric_key != "none")),
    ("--ckpt.best_metric_key", "--eval.dataset", lambda args: args.eval.dataset),
    ("--algo.dynamic_filtering_range", "--algo.dynamic_filtering_enable",
     lambda args: args.algo.dynamic_filtering_enable),
    ("--reward.model_name_or_path --reward.offload", "--train.batching upstream without --reward.remote_url",
     lambda args: not args.reward.remote_url),
    ("--reward.normalize_enable --reward.num_nodes --reward.num_gpus_per_node --train.colocate_critic_reward "
     "--ds.value_head_prefix", "--train.batching upstream with a reward model or a critic",
     lambda args: args.critic.model_name_or_path or not args.reward.remote_url),
    ("--data.image_key --actor.freeze_visual_encoder", "--data.max_images_per_prompt above 0",
     lambda args: args.data.max_images_per_prompt > 0),
    ("--reward.overlong_penalty_factor", "--reward.overlong_buffer_len",
     lambda args: args.reward.overlong_buffer_len is not None),
    ("--eval.steps --eval.at_start --eval.at_end --eval.temperature --eval.n_samples_per_prompt --eval.split",
     "--eval.dataset", lambda args: args.eval.dataset),
    ("--logger.wandb.org --logger.wandb.group --logger.wandb.project --logger.wandb.run_name",
     "--logger.wandb.key", lambda args: args.logger.wandb.key),
    ("--train.ema_beta", "--train.enable_ema", lambda args: args.train.enable_ema),
    ("--ds.ring_attn_head_stride", "--ds.ring_attn_size above 1", lambda args: args.ds.ring_attn_size > 1),
    ("--ds.zpg", "--ds.zero_stage 3", lambda args: args.ds.zero_stage == 3),
    ("--actor.gradient_checkpointing_reentrant", "--actor.gradient_checkpointing_enable",
     lambda args: args.actor.gradient_checkpointing_enable),
    ("--logger.rollout_groups", "--train.run_dir", lambda args: args.train.run_dir),
    ("--data.input_template", "no --data.apply_chat_template", lambda args: not args.data.apply_chat_template),
)  # fmt: skip


def needs(flag: str) -> list[tuple[str, Reads]]:
    """All that a run needs so that it reads the flag."""
    return [
        (what, reads)
        for flags, what, reads in READERS
        if any(flag == name or (name.endswith(".") and flag.startswith(name)) for name in flags.split())
    ]


def unread(flags: Iterable[str], args: SimpleNamespace) -> dict[str, str]:
    """{flag that this run does not read: what it would need}"""
    lacks = {flag: [what for what, reads in needs(flag) if not reads(args)] for flag in flags}
    return {flag: what[0] for flag, what in lacks.items() if what}
