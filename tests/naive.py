"""The objectives as their papers write them: loops over rollouts in plain Python, to hold everything else against."""

import math

import torch

from real_openrlhf.algorithm.objective import ObjectiveSettings


def naive_group_loss(settings: ObjectiveSettings, scores: list, labels: list[int]) -> tuple[torch.Tensor, int]:
    """One prompt's loss straight from the formula, and how many of its rollouts count."""
    zero = sum(scores) * 0
    if settings.name != "trpa":
        labels = [0 if label == -2 else label for label in labels]
    seen = {label for label in labels if label != -1}
    if len(seen) < 2 and settings.uniform_groups == "drop":
        return zero, 0
    tau, exp, log = settings.tau, torch.exp, torch.log
    positive = [s for s, label in zip(scores, labels, strict=True) if label == 1]
    negative = [s for s, label in zip(scores, labels, strict=True) if label in (0, -2)]
    p, n = len(positive), len(negative)
    if settings.name == "real":
        loss = log(1 + sum((exp(-s / tau) for s in positive), zero))
        loss = loss + log(1 + sum((exp(s / tau) for s in negative), zero))
    elif settings.name == "balanced":
        loss = log(1 + sum((exp(-s / tau) for s in positive), zero) / max(p, 1))
        loss = loss + log(1 + sum((exp(s / tau) for s in negative), zero) / max(n, 1))
    elif settings.name == "no_anchor":
        loss = log(1 + sum((exp(s / tau) for s in negative), zero) * sum((exp(-s / tau) for s in positive), zero))
    elif settings.name == "bce":
        loss = zero
        for s in positive:
            loss = loss + log(1 + exp(-s / tau))  # -log sigmoid, in the form that overflows last
        for s in negative:
            loss = loss + log(1 + exp(s / tau))
    elif settings.name == "constant":
        loss = zero + math.log(1 + p) + math.log(1 + n)
        loss = loss - sum((s / tau / (1 + p) for s in positive), zero)
        loss = loss + sum((s / tau / (1 + n) for s in negative), zero)
    elif settings.name == "trpa":
        terms = []
        for winner, high in zip(scores, labels, strict=True):
            for loser, low in zip(scores, labels, strict=True):
                if -1 not in (high, low) and high > low:
                    gain = 2.5 if high == 1 else 1.0
                    terms.append(-log(1 / (1 + exp(-gain * settings.trpa_beta * (winner - loser)))))
        loss = sum(terms, zero) / max(len(terms), 1)
    else:
        loss = zero
        if positive:
            loss = loss - sum(positive) / p
        if negative:
            loss = loss + tau * log(sum(exp(s / tau) for s in negative) / n)
    return loss, p + n
