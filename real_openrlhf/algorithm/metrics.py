"""Every number that is logged about the loss: its name, what it means, and how it is merged.

`group_metrics` computes those of an objective, `token_ratios`, `mismatch` and `meter` those of tokens. `over_updates`
merges the updates of a rollout batch by each metric's rule, and `logged_of_batch` leaves out what does not apply.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from real_openrlhf.algorithm.groups import Groups, RolloutBatch
from real_openrlhf.algorithm.objective import WeighedLoss
from real_openrlhf.algorithm.settings import ObjectiveSettings


class Metric(NamedTuple):
    """What a number means, and how the updates of a rollout batch are merged into one."""

    meaning: str
    merge: Callable[[list[float]], float] | None = None  # None: the mean
    # What an update's value is a mean over, which is its weight: "updates" (all count alike), its "trained" tokens, or
    # one of the counts that start with COUNT, which are not logged. An update whose set is empty is in no mean.
    over: str = "updates"
    # What must hold of the batch for it to be logged: "scores" (an objective over scores), "entropy" (it is computed),
    # "tokens" (any were trained: their mean is undefined otherwise).
    when: frozenset[str] = frozenset()


COUNT = "count/"
over_tokens = partial(Metric, over="trained")


def over(count: str, meaning: str, merge: Callable[[list[float]], float] | None = None) -> Metric:
    return Metric(meaning, merge, COUNT + count)


# Means over an empty set are 0, never nan; the key set is constant. "Weight" is a rollout's own
# |d group loss / d score|, the paper's |W|, before the mean over prompts.
GROUP_METRICS = {
    "real/loss": Metric("the objective, mean over prompts (bce with `reduction=mean`: over responses)"),
    "real/score_pos": over("score_pos", "mean score of correct responses"),
    "real/score_neg": over("score_neg", "mean score of incorrect responses"),
    "real/score_std": over("score", "standard deviation of all scores of a step, over its updates together"),
    "real/score_abs_max": over("score", "largest absolute score", max),
    "real/score_drift": over_tokens("largest difference between the scores of two forward passes", max),
    "real/weight_pos": over("pos", "mean weight of correct responses"),
    "real/weight_neg": over("neg", "mean weight of incorrect responses"),
    "real/weight_abs_max": Metric("largest weight", max),
    "real/weight_bound": Metric("largest weight times tau, if there is one; below 1 for REAL (Proposition 5.1)", max),
    "real/weight_cv": over("classes", "std/mean of the weights within a class of a group; 0 with fixed weights"),
    "rollout/frac_mixed": Metric("share of groups with correct and incorrect responses"),
    "real/frac_unlabelled": Metric("share of ungraded responses, and of cut ones that `truncated=ignore` leaves out"),
}

SCORES = frozenset({"scores"})

# name -> meaning, of a rollout batch.
PLAN_METRICS = {
    "real/max_live_micro_batches": Metric("most micro-batches of a rank whose graphs were alive at once", when=SCORES),
    "update/rollouts_crc": Metric("checksum of the responses in their order, equal in runs with equal batches"),
    "update/frac_nonzero_weight": Metric("share of responses whose weight or advantage can be other than 0"),
    "update/frac_trained": Metric("share of responses that were trained; the others have gradient 0"),
}

# The paper's Table 1: tokens by class and by the range of pi / pi_old.
RATIO_CLASSES = ("pos", "neg")
RATIO_RANGES = ("below", "low", "high", "above")  # < 0.8, [0.8, 1), [1, 1.2], > 1.2
RATIO_METRICS = {
    f"ratio/{side}/{name}/{number}": over(f"ratio/{side}" + f"/{name}" * (number == "grad"), meaning)
    for side in RATIO_CLASSES
    for name in RATIO_RANGES
    for number, meaning in (("share", "percent of the class's tokens"), ("grad", "their mean gradient magnitude"))
}

MISMATCH_METRICS = {
    "sampling/logprob_diff_mean": over_tokens("mean over tokens of |log pi - log pi of vLLM| before the first update"),
    "sampling/logprob_diff_max": over_tokens("largest of a token", max),
    "sampling/kl": over_tokens("mean of log pi of vLLM - log pi, an estimate of the KL"),
}

# Logged with `--algo.real.tis_cap`.
TIS_METRICS = {
    "sampling/is_ratio_mean": over(
        "rollouts", "mean ratio pi_old / pi of vLLM of a response, capped by `--algo.real.tis_cap`"
    ),
    "sampling/frac_is_ratio_capped": over("rollouts", "share of responses at the cap"),
}

# name -> meaning, of the updates of any method.
UPDATE_METRICS = {
    "update/frac_clipped": Metric("share of updates whose gradient was clipped to `--actor.max_norm`"),
    "update/ratio_max": Metric("largest pi/pi_old of a token", max),
}

# Of the first rank's GPU during the updates: most that tensors take, that with PyTorch's cache, how often it emptied
# the cache for want of memory, and what is outside PyTorch (CUDA contexts, NCCL, a sleeping vLLM).
MEMORY_METRICS = ("memory/allocated_gb", "memory/reserved_gb", "memory/alloc_retries", "memory/other_gb")

TERMS = ("entropy_loss", "ppo_kl", "kl_old", "kl", "logprobs_diff")  # sums over tokens, for log and loss
_TOKENS = (*TERMS, "ppo_clip_ratio", "vllm_kl", "is_filter_ratio")
MERGED = {
    **GROUP_METRICS,
    **RATIO_METRICS,
    **UPDATE_METRICS,
    **MISMATCH_METRICS,
    **TIS_METRICS,
    **{name: over_tokens("", when=frozenset({"tokens"})) for name in _TOKENS},
    "entropy_loss": over_tokens("", when=frozenset({"tokens", "entropy"})),
    "actor_lr": Metric("learning rate of the last update", lambda values: values[-1]),
    "policy_loss": Metric("value of the loss"),
}


def group_metrics(
    scores: Tensor,
    table: RolloutBatch,
    weighed: WeighedLoss,
    settings: ObjectiveSettings,
    *,
    trained: Tensor | None = None,
    score_drift: float = 0.0,
) -> tuple[dict[str, float], dict[str, float]]:
    """(`GROUP_METRICS` of one optimizer step, the numbers of rollouts or classes behind its means, by `Metric.over`).

    From the step's whole table and the result of `score_weights`. Score metrics cover the rollouts in the mask
    `trained` (None: all); shares and weights cover all rollouts.
    """
    scores, weights = scores.detach().double(), weighed.rollout_weights.double().abs()
    groups = Groups.from_batch(table)
    sides = {"pos": groups.positive, "neg": groups.negative}
    scored = groups.valid if trained is None else groups.valid & trained
    largest, spreads = _reduced(torch.amax, weights), []  # std/mean of |W| in each class of a group
    has_positive, has_negative = (groups.size(side) > 0 for side in sides.values())
    metrics = {
        "real/loss": float(weighed.loss),
        "real/score_std": _reduced(lambda values: values.std(correction=0), scores[scored]),
        "real/score_abs_max": _reduced(torch.amax, scores[scored].abs()),
        "real/score_drift": float(score_drift),
        "real/weight_abs_max": largest,
        "rollout/frac_mixed": _reduced(torch.mean, (has_positive & has_negative).double()),
        "real/frac_unlabelled": _reduced(torch.mean, (~groups.valid).double()),
    }
    counts = {"score": scored.sum(), "score_total": scores[scored].sum()}
    for name, side in sides.items():
        counts |= {name: side.sum(), f"score_{name}": (side & scored).sum()}
        metrics[f"real/score_{name}"] = _reduced(torch.mean, scores[side & scored])
        metrics[f"real/weight_{name}"] = _reduced(torch.mean, weights[side])
        mean = groups.mean(weights, side)
        seen = (groups.size(side) >= 2) & (mean > 0)
        spreads.append(groups.std(weights, side)[seen] / mean[seen])
    metrics["real/weight_cv"] = _reduced(torch.mean, torch.cat(spreads))
    counts["classes"] = torch.tensor(sum(len(spread) for spread in spreads))
    if "tau" in settings.settings:
        metrics["real/weight_bound"] = largest * settings.tau
    metrics = {name: metrics[name] for name in GROUP_METRICS if name in metrics}
    return metrics, {COUNT + name: float(count) for name, count in counts.items()}


def _reduced(which: Callable[[Tensor], Tensor], values: Tensor) -> float:
    return float(which(values)) if values.numel() else 0.0


def norm_metrics(norms: Sequence[float], max_norm: float) -> dict[str, float]:
    """Metrics of the updates' gradient norms; max_norm 0 clips nothing.

    An update with nothing to train has norm 0, or a rounding's where a KL to the old policy is in the loss.
    """
    trained = [norm for norm in norms if norm > 1e-6 * max(norms)]
    return {
        "actor_grad_norm": sum(trained) / max(len(trained), 1),
        "update/frac_clipped": sum(norm > max_norm > 0 for norm in norms) / max(len(norms), 1),
    }


def over_updates(logs: list[dict[str, float]], weights: Sequence[float] | None = None) -> dict[str, float]:
    """Merge the updates of a rollout batch by each metric's rule; a name without a rule is a mean of trained tokens.

    `weights` are the updates' trained tokens; None: 1 each. An update without the name, or that has nothing of a
    metric's set, is left out; if none has, the value is that of an empty set.
    """
    of_tokens = weights if weights is not None and any(weights) else [1.0] * len(logs)

    def merge(name: str) -> float:
        rule, present = MERGED.get(name, over_tokens("")), [number for number, log in enumerate(logs) if name in log]
        values, own = [logs[number][name] for number in present], [1.0] * len(present)
        if rule.over == "trained":
            own = [of_tokens[number] for number in present]
        elif rule.over != "updates":
            own = [logs[number][rule.over] for number in present]
        own = own if any(own) else [1.0] * len(present)
        if rule.merge:
            return rule.merge([value for value, weight in zip(values, own, strict=True) if weight])
        return sum(value * weight for value, weight in zip(values, own, strict=True)) / sum(own)

    merged = {name: merge(name) for name in dict.fromkeys(chain(*logs)) if not name.startswith(COUNT)}
    return merged | ({"real/score_std": _pooled(logs)} if "real/score_std" in merged else {})


def _pooled(logs: list[dict[str, float]]) -> float:
    """The standard deviation of all updates' scores together, from each one's number, sum and own deviation."""
    names = (COUNT + "score", COUNT + "score_total", "real/score_std")
    parts = [(log[names[0]], *(log[name] for name in names[1:])) for log in logs if log.get(names[0])]
    count = sum(size for size, *_ in parts) or 1.0
    mean = sum(total for _, total, _ in parts) / count
    return math.sqrt(sum(size * (std**2 + (total / size - mean) ** 2) for size, total, std in parts) / count)


def logged_of_batch(of_rollouts: dict[str, float], of_updates: dict[str, float], holds: set[str]) -> dict[str, float]:
    """The line of a batch: means over all its rollouts, and its updates' numbers, each where it applies."""
    every = of_rollouts | of_updates
    rules = PLAN_METRICS | MERGED
    return {name: value for name, value in every.items() if name not in rules or rules[name].when <= holds}
