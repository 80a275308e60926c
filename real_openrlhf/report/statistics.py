"""Means over runs, and what may be said of differences: clear winners, Welch's, Holm's and Fisher's tests, bootstrap.

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
FEWEST = 3  # runs of a setting that takes part in a ranking
LEVEL = 0.05  # chance that a table of equal settings names a difference
POWER = 0.8
MOST_FREEDOM = 1000  # beyond it Student's t is normal, and the series of mpmath converges too slowly
MARGIN = 0.03  # of pass@1: settings whose 90 % interval lies within it are level
Blocks = Mapping[str, Sequence[float]]  # machine -> one value a run


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` runs and its standard error, which is nan for a single run; and how a table shows them."""

    mean: float
    se: float
    n: int
    digits: int = 3
    bold: bool = False

    def __str__(self) -> str:
        se = "" if math.isnan(self.se) else f" ± {self.se:.{self.digits}f}"
        return f"{self.mean:.{self.digits}f}{se}"


def estimate(values: Iterable[float | None], digits: int = 3) -> Estimate | None:
    """Mean and standard error (sample standard deviation over root n) of the values that are known, if any is."""
    array = np.array([value for value in values if value is not None], dtype=float)
    if not len(array):
        return None
    se = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return Estimate(float(array.mean()), float(se), len(array), digits)


def clear_winner(rows: Sequence[Estimate | None]) -> int | None:
    """The row that leads every other by two standard errors of the difference or more; None if there is no such row.

    A row of fewer than three runs can neither win nor be beaten, so it leaves no winner.
    """
    known = {index: row for index, row in enumerate(rows) if row is not None}
    if len(known) < 2 or min(row.n for row in known.values()) < FEWEST:
        return None
    best = max(known, key=lambda index: (known[index].mean, index))
    first = known.pop(best)
    leads = ((first.mean - row.mean, 2 * math.hypot(first.se, row.se)) for row in known.values())
    return best if all(lead >= error and lead > 0 for lead, error in leads) else None


def bootstrap(problem_scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The mean score of each of many resampled sets of problems; the samples of a problem stay together."""
    n = len(problem_scores)
    # how often each problem is drawn: the same as drawing indices, in less memory
    counts = rng.multinomial(n, np.full(n, 1 / n), size=BOOTSTRAPS)
    return counts @ problem_scores / n


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
    chances: np.ndarray = np.ones(1)
    seen, shared = 0, one.keys() & other.keys()
    for block in shared:
        n, m, mine = len(one[block]), len(other[block]), int(sum(one[block]))
        seen, lost = seen + mine, mine + int(sum(other[block]))
        ways = [math.comb(n, k) * math.comb(m, lost - k) / math.comb(n + m, lost) for k in range(lost + 1)]
        chances = np.convolve(chances, ways)
    return min(1.0, float(chances[chances <= chances[seen] * (1 + 1e-9)].sum())) if shared else None


def two_sided(t: float, freedom: float) -> float:
    """How likely a larger |t| is: a regularized beta function of freedom / (freedom + t^2)."""
    from mpmath import betainc

    freedom = min(freedom, MOST_FREEDOM)
    return float(betainc(freedom / 2, 0.5, 0, freedom / (freedom + t**2), regularized=True))


@functools.cache
def student_quantile(share: float, freedom: float) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom at probability `share`, above 0.5."""
    from mpmath import betainc, findroot

    tails, freedom = 2 * (1 - share), min(freedom, MOST_FREEDOM)

    def miss(x: float) -> float:
        return betainc(freedom / 2, 0.5, 0, x, regularized=True) - tails

    place = findroot(miss, (0, 1), solver="illinois", maxsteps=200)
    return math.sqrt(freedom * (1 / place - 1))
