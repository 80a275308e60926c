"""A rollout's class, from the reward function's result: the only module that turns verdicts into labels.

Each sample gets its label once, as `sample.label`, which training, the logs and evaluations read.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE
from real_openrlhf.rewards.calls import NO_ANSWER

if TYPE_CHECKING:  # its import takes seconds
    from openrlhf.trainer.ppo_utils.experience import Experience


def label_rollouts(samples: list[Experience], args: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """(N,) labels and verdicts. A rollout whose reward failed is *ungraded*, and its missing columns are filled in.

    For REAL a score that is neither 0 nor 1 is refused unless a threshold is given.
    """
    any_verdict = args.derived.any_reward
    complete_columns(samples, args)
    for position, sample in enumerate(samples):
        verdict = float(sample.scores[0])
        name = f"rollout {position} of prompt {sample.prompts[0][:80]!r} has score {verdict:g}"
        if sample.label == IGNORED:
            continue
        if any_verdict and math.isinf(verdict):
            raise ValueError(f"{name}, which no group can be compared with. Return finite `scores`")
        if args.algo.real.label_threshold is None and not any_verdict and verdict not in (0.0, 1.0):
            raise ValueError(
                f"{name}: REAL's labels are 0 or 1. Return 0 or 1 as `scores`, or give --algo.real.label_threshold "
                "0.5: a score above it is correct"
            )
    labels = torch.tensor([sample.label for sample in samples], dtype=torch.long)
    return labels, torch.cat([sample.scores for sample in samples])


def label_of(sample: Experience, args: SimpleNamespace) -> int:
    verdict = verdict_of(sample)
    if math.isnan(verdict) or not bool(sample.action_mask.any()):
        return IGNORED
    if verdict > args.derived.threshold:
        return POSITIVE
    if args.algo.real.truncated == "ignore" and bool(sample.truncated[0]):
        return IGNORED
    return UNPARSABLE if bool(sample.info.get(NO_ANSWER, torch.zeros(1))[0]) else NEGATIVE


def verdict_of(sample: Experience) -> float:
    """nan: ungraded."""
    return math.nan if sample.scores is None else float(sample.scores[0])


def complete_columns(samples: list[Experience], args: SimpleNamespace) -> None:
    """Fill in reward, score and extra logs that a failed reward call left out: rows must have the same columns."""
    for sample in samples:
        if sample.rewards is None:
            sample.rewards = torch.zeros(1)
            sample.info["reward"] = torch.zeros(1)
        sample.rewards = sample.rewards.float()
        sample.scores = torch.tensor([verdict_of(sample)], dtype=torch.float32)
        sample.response_length = sample.action_mask.sum(-1)  # upstream also counts the environment's tokens
    if any(sample.scores.isnan() for sample in samples):
        for sample in samples:
            sample.info.pop("score", None)  # its logged mean would be nan
    complete_info(samples, args)


def complete_info(samples: list[Experience], args: SimpleNamespace) -> None:
    """Label each response. One whose reward call failed has other logs than the rest; rows must have the same."""
    for sample in samples:
        sample.label = label_of(sample, args)
        sample.info.pop(NO_ANSWER, None)
    keys = set().union(*(sample.info for sample in samples))
    for sample in samples:
        for key in keys - sample.info.keys():
            sample.info[key] = torch.zeros(1)


def evaluate_by_label(generator: Any) -> None:
    """Let each evaluation of this samples generator count correct responses; OpenRLHF's pass@k is made of rewards.

    An ungraded response is incorrect.
    """
    evaluate = generator.generate_eval_samples

    def generate(**named: Any) -> list:
        samples = evaluate(**named)
        for sample in samples:
            sample.rewards = torch.tensor([float(label_of(sample, generator.args) == POSITIVE)])
        return samples

    if generator.args.derived.whole_groups:  # else as released
        generator.generate_eval_samples = generate
