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
OFF = -1
OR_OFF = ("--eval.steps", "--ckpt.save_steps")

ABOVE_0 = (0.0, math.inf, False)
NOT_NEGATIVE = (0.0, math.inf, True)
SHARE = (0.0, 1.0, True)
# flag -> (lowest, highest, whether the lowest itself will do), in words of what is sensible
RANGES = {
    **dict.fromkeys((*POSITIVE, *OR_OFF), (1.0, math.inf, True)),
    **dict.fromkeys(("--train.seed", "--ds.lora.rank", "--data.dataloader_num_workers"), NOT_NEGATIVE),
    "--actor.adam.lr": ABOVE_0,
    "--actor.adam.eps": ABOVE_0,
    "--actor.adam.weight_decay": NOT_NEGATIVE,
    "--actor.adam.betas": SHARE,
    "--actor.eps_clip": ABOVE_0,
    "--actor.eps_clip_low_high": ABOVE_0,
    "--actor.max_norm": NOT_NEGATIVE,
    "--actor.lr_warmup_ratio": SHARE,
    "--actor.min_lr_ratio": SHARE,
    "--rollout.temperature": ABOVE_0,
    "--rollout.top_p": (0.0, 1.0, False),
    "--eval.temperature": NOT_NEGATIVE,
    "--vllm.gpu_memory_utilization": (0.0, 1.0, False),
    "--algo.advantage.gamma": SHARE,
    "--algo.advantage.lambd": SHARE,
    "--train.ema_beta": SHARE,
    "--ds.lora.dropout": SHARE,
    "--train.hung_minutes": NOT_NEGATIVE,
}


def out_of_range(plan: Plan, flag: str) -> str | None:
    """The defect of a flag that the parser accepts, or None."""
    low, high, with_low = RANGES.get(flag, (-math.inf, math.inf, True))
    for number in map(float, plan.flags[flag].words if flag in RANGES else ()):
        good = math.isfinite(number) and low <= number <= high and (with_low or number > low)
        if not good and not (flag in OR_OFF and number == OFF):
            above = f"{low:g} or more" if with_low else f"more than {low:g}"
            most = "" if math.isinf(high) else f", and {high:g} at most"
            return f"{flag} {plan.text(flag)}: give {above}{most}{', or -1 for never' * (flag in OR_OFF)}."
    return None
