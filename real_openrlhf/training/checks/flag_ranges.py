"""Numbers that a flag of OpenRLHF's cannot mean, which its parser takes: the run would crash or train on nonsense."""

import math

from real_openrlhf.recipes.plan import Plan

# OpenRLHF divides by these, or waits for ever, without saying which one it was.
POSITIVE = (
    *("--actor.num_nodes", "--actor.num_gpus_per_node", "--vllm.num_engines", "--vllm.tensor_parallel_size"),
    *("--rollout.batch_size", "--rollout.n_samples_per_prompt", "--rollout.micro_batch_size", "--data.max_len"),
    *("--train.batch_size", "--train.micro_batch_size", "--train.max_epochs", "--train.num_episodes"),
    *("--eval.n_samples_per_prompt", "--logger.logging_steps", "--rollout.max_new_tokens", "--data.max_samples"),
    *("--train.max_tokens_per_gpu", "--rollout.max_tokens_per_gpu", "--ckpt.max_num", "--train.async_queue_size"),
    *("--ds.ring_attn_size", "--ds.tensor_parallel_size", "--algo.kl.horizon", "--rollout.vllm_generate_batch_size"),
)
POSITIVE_OR_OFF = ("--eval.steps", "--ckpt.save_steps")  # -1 is off
NOT_NEGATIVE = ("--train.seed", "--ds.lora.rank", "--data.dataloader_num_workers")

ABOVE_0 = (0.0, math.inf, False)
SHARE = (0.0, 1.0, True)
# flag -> (lowest, highest, whether the lowest itself will do), in words of what is sensible
RANGES = {
    "--actor.adam.lr": ABOVE_0,
    "--actor.adam.eps": ABOVE_0,
    "--actor.adam.weight_decay": (0.0, math.inf, True),
    "--actor.adam.betas": SHARE,
    "--actor.eps_clip": ABOVE_0,
    "--actor.eps_clip_low_high": ABOVE_0,
    "--actor.max_norm": (0.0, math.inf, True),
    "--actor.lr_warmup_ratio": SHARE,
    "--actor.min_lr_ratio": SHARE,
    "--rollout.temperature": ABOVE_0,
    "--rollout.top_p": (0.0, 1.0, False),
    "--eval.temperature": (0.0, math.inf, True),
    "--vllm.gpu_memory_utilization": (0.0, 1.0, False),
    "--algo.advantage.gamma": SHARE,
    "--algo.advantage.lambd": SHARE,
    "--train.ema_beta": SHARE,
    "--ds.lora.dropout": SHARE,
    "--train.hung_minutes": (0.0, math.inf, True),
}


def out_of_range(plan: Plan, flag: str) -> str | None:
    """The defect of a flag that the parser accepts, or None."""
    said = f"{flag} {plan.text(flag)}"
    if flag in POSITIVE and plan.number(flag) < 1:
        return f"{said}: nothing can be done with that. Give 1 or more."
    if flag in POSITIVE_OR_OFF and plan.number(flag) < 1 and plan.number(flag) != -1:
        return f"{said}: give 1 or more, or -1 for never."
    if flag in NOT_NEGATIVE and plan.number(flag) < 0:
        return f"{said}: give 0 or more."
    if flag not in RANGES:
        return None
    low, high, with_low = RANGES[flag]
    for word in plan.flags[flag].words:
        number = float(word)
        if not (math.isfinite(number) and low <= number <= high and (with_low or number > low)):
            return f"{said}: {_words(low, high, with_low)}."
    return None


def _words(low: float, high: float, with_low: bool) -> str:
    above = f"{low:g} or more" if with_low else f"more than {low:g}"
    return f"give {above}" if math.isinf(high) else f"give {above}, and {high:g} at most"
