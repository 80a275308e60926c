"""Sums of an update's numbers over micro-batches, then over all ranks."""

import math
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor

from real_openrlhf.algorithm.metrics import TERMS
from real_openrlhf.algorithm.mismatch import gaps, mismatch_metrics
from real_openrlhf.algorithm.token_ratios import RATIO_TABLE_SHAPE, ratio_metrics, token_log_ratios


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
        self.raise_to(log_ratio=token_log_ratios(log_probs, old_log_probs, action_mask).max())
        if sampler is not None:
            sums, largest = gaps(unmoved, sampler, action_mask)
            self.add(gaps=sums)
            self.raise_to(gaps=largest)

    def gather(self, ranks: dist.ProcessGroup | None = None) -> None:
        """Merge the numbers of all ranks and copy them to the host: one SUM, one MAX, one copy."""
        sums, maxima = (torch.cat([value.flatten() for value in own.values()]) for own in (self.sums, self.maxima))
        dist.all_reduce(maxima, op=dist.ReduceOp.MAX, group=ranks)
        fetched = fetch(torch.cat([sum_over_ranks(sums, ranks), maxima]))
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


def sum_over_ranks(values: Tensor, ranks: dist.ProcessGroup | None = None) -> Tensor:
    """Each number summed over all ranks, in a new tensor."""
    values = values.detach().clone()
    if dist.is_available() and dist.is_initialized():
        dist.all_reduce(values, op=dist.ReduceOp.SUM, group=ranks)
    return values


def fetch(values: Tensor) -> Tensor:
    """Copy to the host: REAL's trainer waits for its device only here, once a wave and once an update."""
    return values.cpu()
