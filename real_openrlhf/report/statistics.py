"""Means over runs, and what may be said of differences: Welch's test, Holm's correction, bootstrap.

Runs of one seed share their prompts, but their results correlate little, so pairs of seeds would gain what they cost
in degrees of freedom.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

BOOTSTRAPS = 10_000
FEWEST = 3  # runs of a setting that is compared
LEVEL = 0.05  # chance that a table of equal settings names a difference
MOST_FREEDOM = 1000  # beyond it Student's t is normal, and the series of mpmath converges too slowly
MARGIN = 0.03  # of pass@1: settings that differ by less are equivalent


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

    @property
    def p_equivalent(self) -> float:
        """Of a difference of MARGIN or more, by two one-sided tests."""
        inside = MARGIN - abs(self.mean)
        tail = two_sided(abs(inside) / self.se, self.freedom) / 2 if self.se else 0.0
        return tail if inside > 0 else 1 - tail


def difference(minuend: Sequence[float], subtrahend: Sequence[float]) -> Difference | None:
    """Welch's; None if a side has fewer than three runs."""
    sides = [np.array(minuend), np.array(subtrahend)]
    if min(map(len, sides)) < FEWEST:
        return None
    parts = [(side.var(ddof=1) / len(side), len(side) - 1) for side in sides]  # variance of the mean, its freedom
    variance = sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / n for part, n in parts) if variance else sum(n for _, n in parts)
    return Difference(float(sides[0].mean() - sides[1].mean()), math.sqrt(variance), float(freedom))


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
