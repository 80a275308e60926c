"""Token budgets that fill a GPU: the largest micro-batches whose estimated memory stays within a share of it.

Standard library only.
"""

from collections.abc import Iterator
from dataclasses import replace

from real_openrlhf.recipes.plan import DERIVED, Plan, Setting
from real_openrlhf.training.checks.findings import Line
from real_openrlhf.training.checks.memory_estimate import GB, RUNTIME_GB, TRAINING, Shape, step_wide, training_memory

SHARE = 0.85  # of a GPU; the rest is for errors of the estimate, which nobody has compared with a GPU yet
# Of a wave: with 55,296 tokens on eight ranks it costs no micro-batch, with 73,728 on one 2.6 % (packing.py)
DEPTH = "2"
LARGEST = 2**31  # numbers of a tensor, from which on kernels take slower ways
TRAIN_TOKENS, ROLLOUT_TOKENS = "--train.max_tokens_per_gpu", "--rollout.max_tokens_per_gpu"
WAVE_DEPTH = "--algo.real.wave_depth"


def filling(shape: Shape, plan: Plan, gpu_bytes: float, share: float = SHARE) -> dict[str, str]:
    """{flag: value} of budgets in multiples of the longest sample; empty if none fits, or budgets are not read."""
    longest, ranks = plan.args.data.max_len, plan.ranks
    if not plan.args.train.dynamic_batch_enable or not longest:
        return {}
    depth = {WAVE_DEPTH: DEPTH} if plan.in_waves and not step_wide(plan) and WAVE_DEPTH not in plan.flags else {}

    def fits(train: int, rollout: int) -> bool:
        flags = {**depth, **_tokens(train * longest, rollout * longest)}
        given = plan.flags | {flag: Setting.of(DERIVED, value) for flag, value in flags.items()}
        memory = training_memory(shape, replace(plan, flags=given), gpu_bytes)
        return sum(memory.values()) + RUNTIME_GB[TRAINING] * GB <= share * gpu_bytes

    widest = max(shape.intermediate, shape.hidden)
    most = min(-(-plan.args.train.batch_size // ranks), (LARGEST - 1) // (longest * widest))
    train = next((count for count in range(most, 0, -1) if fits(count, 1)), 0)
    rollout = next((count for count in range(2 * train, 0, -1) if fits(train, count)), 0)
    return {**_tokens(train * longest, rollout * longest), **depth} if train else {}


def _tokens(train: int, rollout: int) -> dict[str, str]:
    return {TRAIN_TOKENS: str(train), ROLLOUT_TOKENS: str(rollout)}


def line(shape: Shape, plan: Plan, gpu_gb: float) -> Iterator[str]:
    """What --fill would change."""
    flags = filling(shape, plan, gpu_gb * GB)
    if flags and (tokens := int(flags[TRAIN_TOKENS])) > plan.number(TRAIN_TOKENS):
        deep = f", waves {flags[WAVE_DEPTH]} deep" if WAVE_DEPTH in flags else ""
        yield Line(f"--fill uses {SHARE:.0%} of {gpu_gb:.0f} GB: micro-batches of {tokens:,} tokens{deep}")
