"""Means over runs, and the rule for a clear winner: pure functions of numbers."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BOOTSTRAPS = 10_000
FEWEST = 3  # runs of a setting that takes part in a ranking


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


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Estimate | None:
    """The mean difference over shared seeds; None below three of them."""
    shared = sorted(one.keys() & other.keys())
    return estimate([one[seed] - other[seed] for seed in shared]) if len(shared) >= FEWEST else None


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
