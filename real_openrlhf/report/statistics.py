"""Means over runs, and what may be said of differences: Welch's test, Holm's correction, bootstrap.

Runs of one seed share their prompts, but their results correlate little (0.2, the median of the committed tables). So
pairs of seeds would gain what they cost in degrees of freedom. Runs of different machines are never subtracted: a
machine is a block.
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BOOTSTRAPS = 10_000
FEWEST = 3  # runs of a setting that is compared
LEVEL = 0.05  # chance that a table of equal settings names a difference
MOST_FREEDOM = 1000  # beyond it Student's t is normal, and the series of mpmath converges too slowly
MARGIN = 0.03  # of pass@1: settings whose 90 % interval lies within it are equivalent
Blocks = Mapping[str, Sequence[float]]  # machine -> one value a run


@dataclass(frozen=True)
class Estimate:
    """A mean over runs and its standard error, which is nan for a single run."""

    mean: float
    se: float
    digits: int = 3
    signed: bool = False

    def __str__(self) -> str:
        se = "" if math.isnan(self.se) else f" ± {self.se:.{self.digits}f}"
        return f"{self.mean:{'+' * self.signed}.{self.digits}f}{se}"


def estimate(values: Iterable[float | None], digits: int = 3) -> Estimate | None:
    """Mean and standard error (sample standard deviation over root n) of the values that are known, if any is."""
    array = np.array([value for value in values if value is not None], dtype=float)
    if not len(array):
        return None
    se = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return Estimate(float(array.mean()), float(se), digits)


def bootstrap(problem_scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The mean score of each of many resampled sets of problems; the samples of a problem stay together."""
    n = len(problem_scores)
    # how often each problem is drawn: the same as drawing indices, in less memory
    counts = rng.multinomial(n, np.full(n, 1 / n), size=BOOTSTRAPS)
    return counts @ problem_scores / n


@dataclass(frozen=True)
class Difference:
    """The mean of a setting minus that of another, with its standard error and degrees of freedom."""

    mean: float
    se: float
    freedom: float

    @property
    def p(self) -> float:
        """Two-sided; 0 and 1 if no run of a setting differs from the next."""
        return two_sided(abs(self.mean) / self.se, self.freedom) if self.se else float(self.mean == 0)

    def interval(self, probability: float) -> tuple[float, float]:
        reach = student_quantile((1 + probability) / 2, self.freedom) * self.se
        return self.mean - reach, self.mean + reach


def difference(minuend: Blocks, subtrahend: Blocks) -> Difference | None:
    """Welch's, block by block; None if a side has fewer than three runs. A block needs two runs a side.

    Blocks are weighted by n m / (n + m), which is best if the runs of all blocks vary alike.
    """
    shared = [block for block in minuend if min(len(minuend[block]), len(subtrahend.get(block, ()))) >= 2]
    pairs = [(np.array(minuend[block]), np.array(subtrahend[block])) for block in shared]
    if not pairs or any(sum(map(len, side)) < FEWEST for side in zip(*pairs, strict=True)):
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
    return Difference(float(mean), math.sqrt(variance), float(freedom))


def holm(values: Sequence[float]) -> list[float]:
    """p of each row so that all of them together err with the level's chance."""
    adjusted, largest = [0.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = largest
    return adjusted


def two_sided(t: float, freedom: float) -> float:
    """How likely a larger |t| is: a regularized beta function of freedom / (freedom + t^2)."""
    from mpmath import betainc

    freedom = min(freedom, MOST_FREEDOM)
    return float(betainc(freedom / 2, 0.5, 0, freedom / (freedom + t**2), regularized=True))


@functools.cache
def student_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom at this probability, above 0.5."""
    from mpmath import betainc, findroot

    tails, freedom = 2 * (1 - probability), min(freedom, MOST_FREEDOM)

    def miss(x: float) -> float:
        return betainc(freedom / 2, 0.5, 0, x, regularized=True) - tails

    x = findroot(miss, (0, 1), solver="illinois", maxsteps=200)
    return math.sqrt(freedom * (1 / x - 1))
