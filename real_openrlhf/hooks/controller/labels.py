"""A rollout's class, from the reward function's result: the only module that turns scores into labels."""

import logging
import math
from types import SimpleNamespace
from typing import Any

import torch
from openrlhf.trainer.ppo_utils.experience import Experience
from torch import Tensor

from real_openrlhf.algorithm.formulas import find
from real_openrlhf.algorithm.groups import IGNORED, NEGATIVE, POSITIVE, UNPARSABLE
from real_openrlhf.algorithm.metrics import rollout_gaps
from real_openrlhf.hooks.controller.label_rules import Rollout, apply, find_rule

logger = logging.getLogger(__name__)

# A reward function may return this among its `extra_logs`: 1 for a wrong response without a readable answer, TRPA's
# lowest level. It is taken out here, so it is never a metric.
NO_ANSWER = "label/no_answer"


def label_rollouts(samples: list[Experience], args: SimpleNamespace, tokenizer: Any) -> tuple[Tensor, Tensor]:
    """(N,) labels and scores. A rollout whose reward failed is *ignored*, and its missing columns are filled in.

    With a rule of the user's own, scores are 1 for positive and 0 for other labels, also for graded objectives, and
    they are the rewards from which advantages are made.
    """
    size, real = args.rollout.n_samples_per_prompt, args.algo.real
    graded = args.actor.policy_loss_type != "real" or find(real.objective).graded
    parsable = [not sample.info.pop(NO_ANSWER, torch.zeros(1))[0] for sample in samples]
    labels, scores = [], [math.nan if one.scores is None else float(one.scores[0]) for one in samples]
    complete_columns(samples)
    for position, sample in enumerate(samples):
        first = position // size * size
        if sample.prompts != samples[first].prompts:
            raise ValueError(f"rollout {position} is not of the same prompt as rollout {first}")
        name = f"rollout {position} of prompt {sample.prompts[0][:80]!r}"
        labels.append(_label(sample, scores[position], parsable[position], real, graded, name))
    if real.labels:
        labels = _by_rule(args, samples, labels, scores, parsable, tokenizer)
        scores = [float(label == POSITIVE) for label in labels]
        for sample, score in zip(samples, scores, strict=True):
            sample.rewards = torch.tensor([score])
    return torch.tensor(labels, dtype=torch.long), torch.tensor(scores, dtype=torch.float32)


def _by_rule(
    args: SimpleNamespace, samples: list[Experience], labels: list[int], scores: list, parsable: list, tokenizer: Any
) -> list[int]:
    """The rule's labels in place of the threshold's, group by group, for rollouts with a verdict."""
    name, size = args.algo.real.labels, args.rollout.n_samples_per_prompt
    rule, found = find_rule(name), list(labels)
    for start in range(0, len(samples), size):
        known = [place for place in range(start, start + size) if labels[place] != IGNORED]
        rollouts = [
            Rollout(
                scores[place],
                int(samples[place].action_mask.sum()),
                bool(samples[place].truncated[0]),
                samples[place].prompts[0],
                tokenizer.decode(
                    samples[place].sequences[0][1:][samples[place].action_mask[0].bool()], skip_special_tokens=True
                ),
            )
            for place in known
        ]
        try:
            labelled = apply(rule, rollouts)
        except ValueError as error:
            raise ValueError(
                f"--algo.real.labels {name}, prompt {samples[start].prompts[0][:80]!r}: {error}"
            ) from error
        for place, label in zip(known, labelled, strict=True):
            negative = NEGATIVE if parsable[place] else UNPARSABLE
            found[place] = IGNORED if label is None else POSITIVE if label else negative
    return found


def complete_columns(samples: list[Experience]) -> None:
    """Fill in reward, score and extra logs that a failed reward call left out: rows must have the same columns."""
    failed = 0
    for sample in samples:
        if sample.rewards is None:
            failed += 1
            sample.rewards = torch.zeros(1)
            sample.info["reward"] = torch.zeros(1)
        sample.rewards = sample.rewards.float()
        score = math.nan if sample.scores is None else float(sample.scores[0])
        sample.scores = torch.tensor([score], dtype=torch.float32)
        sample.response_length = sample.action_mask.sum(-1)  # upstream also counts the environment's tokens
    if any(sample.scores.isnan() for sample in samples):
        for sample in samples:
            sample.info.pop("score", None)  # its logged mean would be nan
    keys = set().union(*(sample.info for sample in samples))
    for sample in samples:
        for key in keys - sample.info.keys():
            sample.info[key] = torch.zeros(1)
    if failed:
        logger.warning(f"the reward of {failed} of {len(samples)} rollouts failed; they are ignored")


def _label(sample: Experience, score: float, parsable: bool, real: SimpleNamespace, graded: bool, name: str) -> int:
    """The class of one rollout. A score that is neither 0 nor 1 is refused unless a threshold is given."""
    compared = graded or bool(real.labels)  # the score is compared with the scores of its group
    if math.isnan(score) or not bool(sample.action_mask.any()):
        return IGNORED
    if compared and math.isinf(score):
        raise ValueError(f"{name} has score {score:g}, which no group can be compared with. Return finite `scores`")
    threshold = None if real.labels else real.label_threshold
    if threshold is None and not compared and score not in (0.0, 1.0):
        raise ValueError(
            f"{name} has score {score:g}: REAL's labels are 0 or 1. Return 0 or 1 as `scores`, or give "
            "--algo.real.label_threshold"
        )
    if score > (0.5 if threshold is None else threshold):
        return POSITIVE
    if real.truncated == "ignore" and not real.labels and bool(sample.truncated[0]):
        return IGNORED
    return NEGATIVE if parsable else UNPARSABLE


def over_limit(samples: list[Experience], known: list[int], limit: float) -> Tensor:
    """(N,) whether a rollout's mean gap is above the limit; logged for each rollout as `mismatch/ignored`.

    Rollouts outside the `known` positions have no old log-probabilities and count as within the limit.
    """
    if any(sample.rollout_log_probs is None for sample in samples):
        raise ValueError(
            "--algo.real.mismatch_limit needs vLLM's log-probabilities, and the agent returned rollouts without them. "
            "Return them as `rollout_log_probs`, or leave the limit out"
        )
    over = torch.zeros(len(samples), dtype=torch.bool)
    for position in known:
        sample = samples[position]
        gap = rollout_gaps(sample.action_log_probs, sample.rollout_log_probs, sample.action_mask)
        over[position] = ~(gap <= limit)
    for sample, is_over in zip(samples, over.tolist(), strict=True):
        sample.info["mismatch/ignored"] = torch.tensor([float(is_over)])
    return over
