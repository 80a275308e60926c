"""Every number that is logged about the loss: its name, what it means, how it is computed and merged.

`MetricAccumulator` sums over micro-batches and ranks, `over_updates` merges the updates of a rollout batch by each
metric's rule, and `logged_of_batch` leaves out what does not apply to it.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from real_openrlhf.algorithm.formulas import SUM, TOKEN_SCORES
from real_openrlhf.algorithm.groups import NEGATIVE, POSITIVE, UNPARSABLE, Groups, RolloutBatch
from real_openrlhf.algorithm.objective import ObjectiveSettings, WeighedLoss


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
    "real/weight_bound": Metric("largest weight times tau, below 1 for REAL (Proposition 5.1)", max),
    "real/weight_cv": over("classes", "std/mean of the weights within a class of a group; 0 with fixed weights"),
    "rollout/frac_mixed": Metric("share of groups with correct and incorrect responses"),
    "real/frac_unlabelled": Metric("share of responses without a label: ungraded, or cut and ignored"),
}

SCORES = frozenset({"scores"})

# name -> meaning, of a rollout batch.
PLAN_METRICS = {
    "real/max_live_micro_batches": Metric("most micro-batches of a rank whose graphs were alive at once", when=SCORES),
    "update/rollouts_crc": Metric("checksum of the responses in their order, equal in runs with equal batches"),
    "update/frac_nonzero_weight": Metric("share of responses whose weight or advantage can be other than 0"),
    "update/frac_trained": Metric("share of responses that were trained; the others have gradient 0"),
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
        "real/weight_bound": largest * settings.own.get("tau", 0.5),
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
    metrics = {name: metrics[name] for name in GROUP_METRICS}
    return metrics, {COUNT + name: float(count) for name, count in counts.items()}


def _reduced(which: Callable[[Tensor], Tensor], values: Tensor) -> float:
    return float(which(values)) if values.numel() else 0.0


# The paper's Table 1: tokens by class and by the range of pi / pi_old.
RATIO_EPSILON = 0.2
RATIO_CLASSES = ("pos", "neg")
RATIO_RANGES = ("below", "low", "high", "above")  # < 0.8, [0.8, 1), [1, 1.2], > 1.2
# tokens, and the sum of their gradient magnitudes
RATIO_TABLE_SHAPE = torch.Size((len(RATIO_CLASSES), len(RATIO_RANGES), 2))


def token_gradients(
    family: str,
    log_probs: Tensor,
    old_log_probs: Tensor,
    action_mask: Tensor,
    labels: Tensor,
    clip: tuple[float, float] = (0.2, 0.2),
) -> Tensor:
    """(B, T) |W| of each token of a baseline, whose gradient is the token mean of W_t grad log pi(o_t).

    The advantage is taken as 1, as in the paper's Table 1. Clipped tokens have |W| 0: `grpo` clips each token, `gspo`
    whole rollouts by their mean log-ratio.
    """
    log_ratio = log_ratios(log_probs, old_log_probs, action_mask)
    ratio = log_ratio.exp()
    if family == "gspo":
        mean = log_ratio.sum(-1, keepdim=True) / action_mask.bool().sum(-1, keepdim=True).clamp(min=1)
        ratio = mean.exp().expand_as(ratio)
    positive = (labels == POSITIVE)[:, None]
    clipped = torch.where(positive, ratio > 1 + clip[1], ratio < 1 - clip[0])
    return torch.where(clipped, 0.0, ratio)


def rollout_gradients(
    score: str, log_probs: Tensor, old_log_probs: Tensor, action_mask: Tensor, weights: Tensor
) -> Tensor:
    """The same for objectives with one weight per response: |weight * d score / d log pi| * its tokens."""
    mask = action_mask.bool()
    new, old = (torch.where(mask, part.detach(), 0.0) for part in (log_probs, old_log_probs))
    with torch.enable_grad():
        of_tokens = TOKEN_SCORES[score.removeprefix(SUM)](new.requires_grad_(), old, old, old)
        (slopes,) = torch.autograd.grad(of_tokens.sum(), new)
    each = weights.abs().to(slopes)[:, None] * slopes.abs()
    return each * mask.sum(-1, keepdim=True) if score.startswith(SUM) else each


def ratio_table(
    log_probs: Tensor, old_log_probs: Tensor, action_mask: Tensor, labels: Tensor, gradients: Tensor
) -> Tensor:
    """A micro-batch's table of shape `RATIO_TABLE_SHAPE`, in float64 on the device of the micro-batch.

    Sum the tables over micro-batches and ranks, then call `ratio_metrics`. `gradients` come from `token_gradients` or
    `rollout_gradients`. Ignored rollouts are in neither class.
    """
    mask = action_mask.bool()
    ratio = log_ratios(log_probs, old_log_probs, mask).exp()
    low, high = 1 - RATIO_EPSILON, 1 + RATIO_EPSILON
    ranges = (ratio < low, (ratio >= low) & (ratio < 1), (ratio >= 1) & (ratio <= high), ratio > high)
    sides = (labels == POSITIVE, (labels == NEGATIVE) | (labels == UNPARSABLE))
    magnitudes = torch.where(mask, gradients.detach(), 0.0)
    cells = []
    for side in sides:
        for inside in ranges:  # sums of masks, not selections: a selection makes the host wait for its size
            chosen = inside & mask & side[:, None]
            cells.append(torch.stack([chosen.sum().double(), torch.where(chosen, magnitudes, 0.0).double().sum()]))
    return torch.stack(cells).view(RATIO_TABLE_SHAPE)


RATIO_METRICS = {
    f"ratio/{side}/{name}/{number}": over(f"ratio/{side}" + f"/{name}" * (number == "grad"), meaning)
    for side in RATIO_CLASSES
    for name in RATIO_RANGES
    for number, meaning in (("share", "percent of the class's tokens"), ("grad", "their mean gradient magnitude"))
}


def ratio_metrics(table: Tensor) -> dict[str, float]:
    """`RATIO_METRICS` of a summed `ratio_table`, and the numbers of tokens behind them."""
    metrics = {}
    for i, side in enumerate(RATIO_CLASSES):
        tokens = metrics[f"{COUNT}ratio/{side}"] = float(table[i, :, 0].sum())
        for j, name in enumerate(RATIO_RANGES):
            count, gradient = table[i, j].tolist()
            metrics[f"{COUNT}ratio/{side}/{name}"] = count
            metrics[f"ratio/{side}/{name}/share"] = 100 * count / max(tokens, 1)
            metrics[f"ratio/{side}/{name}/grad"] = gradient / max(count, 1)
    return metrics


# Both programs run the same model and should differ by rounding only: else the rollouts come from another policy.
MISMATCH_METRICS = {
    "sampling/logprob_diff_mean": over_tokens("mean over tokens of |log pi - log pi of vLLM| before the first update"),
    "sampling/logprob_diff_max": over_tokens("largest of a token", max),
    "sampling/kl": over_tokens("mean of log pi of vLLM - log pi, an estimate of the KL"),
}

# Logged with `--algo.real.tis_cap`.
TIS_METRICS = {
    "sampling/is_ratio_mean": over_tokens(
        "mean ratio pi_old / pi of vLLM of a response, capped by `--algo.real.tis_cap`"
    ),
    "sampling/frac_is_ratio_capped": over_tokens("share of responses at the cap"),
}

# A trained model's logits lie between 16 and 32, where neighbouring bf16 numbers are 1/8 apart: either side rounds a
# token's logit by 1/16 at most, and on average over tokens, most of which are nearly certain, by far less. So a mean
# above 1/16 is more than bf16 can explain. At 1/2 a typical token is 1.6 times likelier on one side than on the other,
# beyond every clip range: rounding cannot cause it. The division by the temperature comes after this rounding.
WARN_ABOVE, STOP_ABOVE = 1 / 16, 1 / 2


def token_gaps(policy: Tensor, sampler: Tensor, action_mask: Tensor) -> Tensor:
    """(B, T) log pi of vLLM - log pi in float32, 0 where nothing was sampled."""
    return torch.where(action_mask.bool(), sampler.detach().float() - policy.detach().float(), 0.0)


def gaps(policy: Tensor, sampler: Tensor, action_mask: Tensor) -> tuple[Tensor, Tensor]:
    """A micro-batch's gaps, in float64 on its device: (tokens and sums, to add up), the largest."""
    each = token_gaps(policy, sampler, action_mask)
    sums = torch.stack([action_mask.bool().sum().double(), each.abs().double().sum(), each.double().sum()])
    return sums, each.abs().max().double()


def mismatch_metrics(sums: Tensor, largest: Tensor) -> dict[str, float]:
    """`MISMATCH_METRICS` from the results of `gaps`, merged over all ranks; 0 without tokens."""
    tokens, absolute, signed = sums.tolist()
    count = max(tokens, 1)
    return dict(zip(MISMATCH_METRICS, (absolute / count, float(largest), signed / count), strict=True))


# name -> meaning, of the updates of any method.
UPDATE_METRICS = {
    "update/frac_clipped": Metric("share of updates whose gradient was clipped to `--actor.max_norm`"),
    "update/ratio_max": Metric("largest pi/pi_old of a token", max),
}


def norm_metrics(norms: Sequence[float], max_norm: float) -> dict[str, float]:
    """Metrics of the updates' gradient norms; max_norm 0 clips nothing.

    An update with nothing to train has norm 0, or a rounding's where a KL to the old policy is in the loss.
    """
    trained = [norm for norm in norms if norm > 1e-6 * max(norms)]
    return {
        "actor_grad_norm": sum(trained) / max(len(trained), 1),
        "update/frac_clipped": sum(norm > max_norm > 0 for norm in norms) / max(len(norms), 1),
    }


TERMS = ("entropy_loss", "ppo_kl", "kl_old", "kl", "logprobs_diff")  # sums over tokens, for log and loss
_TOKENS = (*TERMS, "ppo_clip_ratio", "vllm_kl", "is_filter_ratio")
MERGED = {
    **GROUP_METRICS,
    **RATIO_METRICS,
    **UPDATE_METRICS,
    **MISMATCH_METRICS,
    **{name: over_tokens("", when=frozenset({"tokens"})) for name in _TOKENS},
    "entropy_loss": over_tokens("", when=frozenset({"tokens", "entropy"})),
    "actor_lr": Metric("learning rate of the last update", lambda values: values[-1]),
    "policy_loss": Metric("value of the loss"),
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


class MetricAccumulator:
    """Sums and maxima over the tokens that this rank trains; `gather` merges them over all ranks."""

    def __init__(self, device: torch.device | str, *, sampled: bool, sums: tuple[str, ...] = ()) -> None:
        self.sampled = sampled  # rollouts have vLLM's log-probabilities

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.sums = {name: zeros() for name in (*TERMS, *sums)}
        self.sums |= {"ratios": zeros(*RATIO_TABLE_SHAPE), "gaps": zeros(3)}
        self.maxima = {"score_drift": zeros(), "log_ratio": zeros(), "gaps": zeros()}

    @torch.no_grad()
    def add(self, **sums: Tensor) -> None:
        for name, value in sums.items():
            self.sums[name] += value.double()

    @torch.no_grad()
    def raise_to(self, **maxima: Tensor) -> None:
        for name, value in maxima.items():
            self.maxima[name] = torch.maximum(self.maxima[name], value.double())

    @torch.no_grad()
    def see(
        self, log_probs: Tensor, old_log_probs: Tensor, action_mask: Tensor, unmoved: Tensor, sampler: Tensor | None
    ) -> None:
        """A micro-batch's largest log(pi/pi_old), and the distance of the unmoved policy from vLLM."""
        self.raise_to(log_ratio=log_ratios(log_probs, old_log_probs, action_mask).max())
        if sampler is not None:
            sums, largest = gaps(unmoved, sampler, action_mask)
            self.add(gaps=sums)
            self.raise_to(gaps=largest)

    def gather(self, group: dist.ProcessGroup | None = None) -> None:
        """Merge the numbers of all ranks and copy them to the host: one SUM, one MAX, one copy."""
        sums, maxima = (torch.cat([value.flatten() for value in own.values()]) for own in (self.sums, self.maxima))
        dist.all_reduce(maxima, op=dist.ReduceOp.MAX, group=group)
        fetched = fetch(torch.cat([sum_over_ranks(sums, group), maxima]))
        parts = iter(fetched.split([value.numel() for own in (self.sums, self.maxima) for value in own.values()]))
        for own in (self.sums, self.maxima):
            own.update({name: next(parts).view(value.shape) for name, value in own.items()})

    def metrics(self) -> dict[str, float]:
        """The logged numbers, after `gather`."""
        return {
            "update/ratio_max": math.exp(min(float(self.maxima["log_ratio"]), 700.0)),  # exp stays finite
            **ratio_metrics(self.sums["ratios"]),
            **(mismatch_metrics(self.sums["gaps"], self.maxima["gaps"]) if self.sampled else {}),
        }

    def token_means(self, tokens: int, names: Iterable[str] = TERMS) -> dict[str, float]:
        return {name: float(self.sums[name]) / max(tokens, 1) for name in names}


def sum_over_ranks(values: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """Each number summed over all ranks, in a new tensor."""
    values = values.detach().clone()
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(values, op=dist.ReduceOp.SUM, group=group)
    return values


def fetch(values: Tensor) -> Tensor:
    """Copy to the host: REAL's trainer waits for its device only here, once a wave and once an update."""
    return values.cpu()


def log_ratios(log_probs: Tensor, old_log_probs: Tensor, action_mask: Tensor) -> Tensor:
    """(B, T) log(pi / pi_old) without a graph, 0 where nothing was sampled."""
    mask = action_mask.bool()
    return torch.where(mask, log_probs, 0.0).detach() - torch.where(mask, old_log_probs, 0.0).detach()
