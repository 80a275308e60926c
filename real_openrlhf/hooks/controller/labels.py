"""A rollout's class, from the reward function's result: the only module that turns scores into labels."""

import math
from types import SimpleNamespace

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from torch import Tensor

from real_openrlhf.algorithm.formulas import find
from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE

# A reward function may return this among its `extra_logs`: 1 for an incorrect response without a readable answer,
# TRPA's lowest level. It is taken out here, so it is never a metric.
NO_ANSWER = "label/no_answer"


def label_rollouts(samples: list[Experience], args: SimpleNamespace) -> tuple[Tensor, Tensor]:
    """(N,) labels and scores. A rollout whose reward failed is *ignored*, and its missing columns are filled in.

    A score that is neither 0 nor 1 is refused unless a threshold is given.
    """
    size, real = args.rollout.n_samples_per_prompt, args.algo.real
    graded, threshold = args.actor.policy_loss_type != "real" or find(real.objective).graded, real.label_threshold
    parsable = [not sample.info.pop(NO_ANSWER, torch.zeros(1))[0] for sample in samples]
    scores = [math.nan if sample.scores is None else float(sample.scores[0]) for sample in samples]
    complete_columns(samples)
    labels = []
    for position, (sample, score) in enumerate(zip(samples, scores, strict=True)):
        first = position // size * size
        if sample.prompts != samples[first].prompts:
            raise ValueError(f"rollout {position} is not of the same prompt as rollout {first}")
        name = f"rollout {position} of prompt {sample.prompts[0][:80]!r} has score {score:g}"
        if math.isnan(score) or not bool(sample.action_mask.any()):
            labels.append(IGNORED)
        elif graded and math.isinf(score):
            raise ValueError(f"{name}, which no group can be compared with. Return finite `scores`")
        elif threshold is None and not graded and score not in (0.0, 1.0):
            raise ValueError(
                f"{name}: REAL's labels are 0 or 1. Return 0 or 1 as `scores`, or give --algo.real.label_threshold "
                "0.5: a score above it is correct"
            )
        elif score > args.derived.threshold:
            labels.append(POSITIVE)
        elif real.truncated == "ignore" and bool(sample.truncated[0]):
            labels.append(IGNORED)
        else:
            labels.append(NEGATIVE if parsable[position] else UNPARSABLE)
    return torch.tensor(labels, dtype=torch.long), torch.tensor(scores, dtype=torch.float32)


def complete_columns(samples: list[Experience]) -> None:
    """Fill in reward, score and extra logs that a failed reward call left out: rows must have the same columns."""
    for sample in samples:
        if sample.rewards is None:
            sample.rewards = torch.zeros(1)
            sample.info["reward"] = torch.zeros(1)
        sample.rewards = sample.rewards.float()
        score = math.nan if sample.scores is None else float(sample.scores[0])
        sample.scores = torch.tensor([score], dtype=torch.float32)
        sample.response_length = sample.action_mask.sum(-1)  # upstream also counts the environment's tokens
    if any(sample.scores.isnan() for sample in samples):
        for sample in samples:
            sample.info.pop("score", None)  # its logged mean would be nan
    complete_info(samples)


def complete_info(samples: list[Experience]) -> None:
    """A response whose reward call failed has other logs than the rest; rows of a batch must have the same."""
    keys = set().union(*(sample.info for sample in samples))
    for sample in samples:
        for key in keys - sample.info.keys():
            sample.info[key] = torch.zeros(1)
