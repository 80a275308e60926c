"""Hours of a run and of its evaluation, before you rent GPUs: sums under named assumptions. Nobody has compared them
with a GPU yet.

Standard library only.
"""

import math

from real_openrlhf.recipes.plan import Plan
from real_openrlhf.training.checks.memory_estimate import Shape, rollouts

BANDWIDTH, FLOPS = 0.5 * 3.35e12, 0.35 * 989e12  # of an H100: the shares of its peaks that vLLM and a policy reach
LENGTH = 0.5  # mean length of an answer, as a share of the longest allowed
LEAST_SECONDS = 0.008  # of a decoding step
AT_ONCE = 256  # answers that an engine draws together
ASSUMED = (
    f"H100s at half of their memory's bandwidth in generation and 35 % of their bf16 peak in training; answers of "
    f"{LENGTH:.0%} of the most tokens; {AT_ONCE} answers an engine at once, {1000 * LEAST_SECONDS:g} ms a decoding "
    "step at least; every rollout trained"
)


def decoding(shape: Shape, at_once: float, length: float) -> float:
    """Seconds of one decoding step: an engine reads its weights and the keys and values of all its answers."""
    kept = 2 * 2 * shape.layers * shape.kv_width  # bytes a token
    return max(LEAST_SECONDS, (2 * shape.parameters + at_once * kept * length / 2) / BANDWIDTH)


def drawing(shape: Shape, plan: Plan, answers: float, longest: int, engines: int) -> float:
    """Seconds until these answers are drawn; the longest one ends last."""
    at_once = min(answers / engines, AT_ONCE)
    steps = max(longest, answers / engines / at_once * LENGTH * longest)
    return steps * decoding(shape, at_once, LENGTH * longest)


def training_seconds(shape: Shape, plan: Plan) -> float:
    """Of the whole run: generation, log-probabilities, updates, validation."""
    gpus, longest = math.prod(plan.layout), plan.number("--rollout.max_new_tokens")
    engines = plan.number("--vllm.num_engines")
    tokens = rollouts(plan) * LENGTH * longest
    again = "--actor.gradient_checkpointing_enable" in plan.flags
    passes = 2 + (2 if plan.needs_reference else 0) + (8 if again else 6) * plan.number("--train.max_epochs")
    step = drawing(shape, plan, rollouts(plan), longest, engines) + passes * shape.parameters * tokens / gpus / FLOPS
    steps, every = plan.number("--train.max_steps"), plan.number("--eval.steps")
    validations = steps // every + 2 if every > 0 else 0
    return steps * step + validations * longest * decoding(shape, AT_ONCE, LENGTH * longest)
