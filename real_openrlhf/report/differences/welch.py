"""Welch's test for two samples of runs, Holm's correction for many, the difference that the test could have seen, and
Fisher's exact test for lost runs.

Runs of one seed share their prompts, but their results hardly correlate (0.1 in the committed campaigns). So pairs of
seeds would only cost degrees of freedom. Runs of different machines are never subtracted: a machine is a block.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from mpmath import betainc, findroot

from real_openrlhf.report.statistics import FEWEST

LEVEL = 0.05  # chance that a table of equal settings names a difference
POWER = 0.8
MOST_FREEDOM = 1000  # beyond it Student's t is normal, and the series of mpmath converges too slowly
MARGIN = 0.03  # of pass@1: settings whose 90 % interval lies within it are level
Blocks = Mapping[str, Sequence[float]]  # machine -> one value a run


@dataclass(frozen=True)
class Difference:
    """The mean of one setting less that of another, with its standard error and degrees of freedom."""

    mean: float
    se: float
    freedom: float
    runs: tuple[int, int]

    @property
    def p(self) -> float:
        """Two-sided; 0 and 1 if no run of a setting differs from the next."""
        return two_sided(abs(self.mean) / self.se, self.freedom) if self.se else float(self.mean == 0)

    def interval(self, share: float) -> tuple[float, float]:
        reach = student_quantile((1 + share) / 2, self.freedom) * self.se
        return self.mean - reach, self.mean + reach

    def detectable(self, rows: int) -> float:
        """The difference that would be named with a probability of 80 %, beside `rows` rows in all."""
        bound = student_quantile(1 - LEVEL / 2 / rows, self.freedom)
        return (bound + student_quantile(POWER, self.freedom)) * self.se

    @property
    def is_level(self) -> bool:
        low, high = self.interval(0.9)
        return -MARGIN < low and high < MARGIN


def difference(one: Blocks, other: Blocks) -> Difference | None:
    """Welch's, block by block; None if a side has fewer than three runs. A block needs two runs a side.

    Blocks are weighted by n m / (n + m), which is best if the runs of all blocks vary alike.
    """
    shared = [block for block in one if min(len(one[block]), len(other.get(block, ()))) >= 2]
    pairs = [(np.array(one[block]), np.array(other[block])) for block in shared]
    counts = sum(len(a) for a, _ in pairs), sum(len(b) for _, b in pairs)
    if min(counts) < FEWEST:
        return None
    weights = np.array([len(a) * len(b) / (len(a) + len(b)) for a, b in pairs])
    weights /= weights.sum()
    mean = sum(w * (a.mean() - b.mean()) for w, (a, b) in zip(weights, pairs, strict=True))
    parts = [  # each sample's share of the variance, and its degrees of freedom
        (w**2 * side.var(ddof=1) / len(side), len(side) - 1)
        for w, pair in zip(weights, pairs, strict=True)
        for side in pair
    ]
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / n for part, n in parts) if variance else sum(n for _, n in parts)
    return Difference(float(mean), math.sqrt(variance), float(freedom), counts)


def holm(values: Sequence[float]) -> list[float]:
    """p of each row so that all of them together err with the level's chance."""
    adjusted, largest = [0.0] * len(values), 0.0
    for place, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - place) * values[index]))
        adjusted[index] = largest
    return adjusted


def fisher(one: Blocks, other: Blocks) -> float | None:
    """How likely counts of lost runs (1; else 0) at most as likely as these are, if both sides lose alike; two-sided.

    With several blocks it is over the sum of one side's losses, given all losses of each block. None without a block.
    """
    chances, seen, shared = {0: 1.0}, 0, one.keys() & other.keys()
    for block in shared:
        n, m = len(one[block]), len(other[block])
        mine, lost = int(sum(one[block])), int(sum(one[block]) + sum(other[block]))
        seen += mine
        here = {k: math.comb(n, k) * math.comb(m, lost - k) / math.comb(n + m, lost) for k in range(min(n, lost) + 1)}
        sums: dict[int, float] = defaultdict(float)
        for before, chance in chances.items():
            for k, more in here.items():
                sums[before + k] += chance * more
        chances = sums
    unlikely = chances[seen] * (1 + 1e-9)
    return min(1.0, sum(chance for chance in chances.values() if chance <= unlikely)) if shared else None


def two_sided(t: float, freedom: float) -> float:
    """How likely a larger |t| is: a regularized beta function of freedom / (freedom + t^2)."""
    freedom = min(freedom, MOST_FREEDOM)
    return float(betainc(freedom / 2, 0.5, 0, freedom / (freedom + t**2), regularized=True))


@functools.cache
def student_quantile(share: float, freedom: float) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom at probability `share`, above 0.5."""
    tails, freedom = 2 * (1 - share), min(freedom, MOST_FREEDOM)

    def miss(x: float) -> float:
        return betainc(freedom / 2, 0.5, 0, x, regularized=True) - tails

    place = findroot(miss, (0, 1), solver="illinois", maxsteps=200)
    return math.sqrt(freedom * (1 / place - 1))
