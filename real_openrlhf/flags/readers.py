"""Which runs read a flag. One that the user types and its run does not read is refused, with the reader's condition.

A flag without a row is read by every run. `compare` trains a method once where a grid's flag is not its own.
"""

from collections.abc import Callable, Iterable
from types import SimpleNamespace

Reads = Callable[[SimpleNamespace], object]


def _real(args: SimpleNamespace) -> bool:
    return args.actor.policy_loss_type == "real"


def _clips_evenly(args: SimpleNamespace) -> bool:
    both = (args.actor.eps_clip,) * 2  # as OpenRLHF fills in a missing --actor.eps_clip_low_high
    return not _real(args) and tuple(args.actor.eps_clip_low_high or both) == both


# flags (`--critic.` stands for all that begin so), what they need, and whether complete arguments have it
READERS: tuple[tuple[str, str, Reads], ...] = (
    ("--algo.real.objective --algo.real.set --algo.real.tau", "--actor.policy_loss_type real (--algo real)", _real),
    ("--algo.real.uniform_groups --algo.real.tis_cap --algo.real.max_live_micro_batches",
     "an objective over scores (--algo real)", lambda args: args.derived.score),
    ("--algo.real.kl_old_coef --algo.real.truncated --train.skip_zero_gradient",
     "--train.batching whole_groups", lambda args: args.derived.whole_groups),
    ("--actor.eps_clip_low_high", "--actor.policy_loss_type ppo or gspo", lambda args: not _real(args)),
    ("--actor.eps_clip", "ppo or gspo with --no-actor.eps_clip_low_high", _clips_evenly),
    ("--actor.loss_agg_mode", "--actor.policy_loss_type ppo, or a loss of tokens of your own",
     lambda args: args.derived.score is None and args.actor.policy_loss_type != "gspo"),
    ("--algo.advantage.is_correction_mode --algo.advantage.is_correction_gating "
     "--algo.advantage.is_correction_threshold", "ppo with --algo.advantage.is_correction_level token or seq",
     lambda args: args.actor.policy_loss_type == "ppo" and args.algo.advantage.is_correction_level != "off"),
    ("--algo.kl.use_loss --algo.kl.target", "--algo.kl.init_coef above 0", lambda args: args.algo.kl.init_coef > 0),
    ("--algo.kl.unbiased_gradient", "--algo.kl.use_loss with --algo.kl.init_coef above 0",
     lambda args: args.algo.kl.use_loss and args.algo.kl.init_coef > 0),
    ("--algo.kl.horizon", "--algo.kl.target", lambda args: args.algo.kl.target),
    ("--algo.kl.estimator --ref.", "a reference model: --algo.kl.init_coef above 0, or --algo trpa",
     lambda args: args.derived.reference),
    ("--critic. --algo.advantage.lambd", "--algo.advantage.estimator gae",
     lambda args: args.critic.model_name_or_path),
    ("--ds.lora.alpha --ds.lora.dropout --ds.lora.target_modules", "--ds.lora.rank above 0",
     lambda args: args.ds.lora.rank),
    ("--train.max_tokens_per_gpu --rollout.max_tokens_per_gpu", "--train.dynamic_batch_enable",
     lambda args: args.train.dynamic_batch_enable),
    ("--algo.dynamic_filtering_range", "--algo.dynamic_filtering_enable",
     lambda args: args.algo.dynamic_filtering_enable),
    ("--reward.overlong_penalty_factor", "--reward.overlong_buffer_len",
     lambda args: args.reward.overlong_buffer_len is not None),
    ("--eval.steps --eval.at_start --eval.at_end --eval.temperature --eval.n_samples_per_prompt --eval.split",
     "--eval.dataset", lambda args: args.eval.dataset),
    ("--logger.wandb.org --logger.wandb.group --logger.wandb.project --logger.wandb.run_name",
     "--logger.wandb.key", lambda args: args.logger.wandb.key),
    ("--actor.muon.", "--actor.optim muon", lambda args: args.actor.optim == "muon"),
    ("--train.ema_beta", "--train.enable_ema", lambda args: args.train.enable_ema),
    ("--ds.ring_attn_head_stride", "--ds.ring_attn_size above 1", lambda args: args.ds.ring_attn_size > 1),
    ("--data.input_template", "no --data.apply_chat_template", lambda args: not args.data.apply_chat_template),
)  # fmt: skip


def needs(flag: str) -> tuple[str, Reads]:
    """What a run needs so that it reads the flag."""
    for flags, what, reads in READERS:
        if any(flag == name or (name.endswith(".") and flag.startswith(name)) for name in flags.split()):
            return what, reads
    return "", lambda args: True


def unread(flags: Iterable[str], args: SimpleNamespace) -> dict[str, str]:
    """{flag that this run does not read: what it would need}"""
    found = {flag: needs(flag) for flag in flags}
    return {flag: what for flag, (what, reads) in found.items() if not reads(args)}
