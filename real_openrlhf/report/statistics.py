"""Means over seeds, and the rule for a clear winner: pure functions of numbers."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

BOOTSTRAPS = 10_000
FEWEST = 3  # runs of a setting that takes part in a ranking
MAX_POINTS = 100  # a curve is averaged over equal windows of steps until it has no more points than this
TAIL = 0.1  # a training metric's final value is its mean over this share of the steps


@dataclass(frozen=True, eq=False)
class Series:
    """One logged number over the run: steps in order, one finite value each."""

    steps: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, points: dict[int, float]) -> "Series":
        steps = sorted(step for step, value in points.items() if math.isfinite(value))
        return cls(np.array(steps, dtype=int), np.array([points[step] for step in steps], dtype=float))

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True)
class Estimate:
    """A mean over `n` runs and its standard error; the error is nan for a single run."""

    mean: float
    se: float
    n: int


@dataclass(frozen=True, eq=False)
class Band(Series):
    """A mean curve over runs with its standard error, at steps where every run has a value and nowhere else."""

    se: np.ndarray
    n: int


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Mean and standard error (sample standard deviation over root n) of the values that are known, if any is."""
    array = np.array([value for value in values if value is not None], dtype=float)
    if not len(array):
        return None
    se = array.std(ddof=1) / math.sqrt(len(array)) if len(array) > 1 else math.nan
    return Estimate(float(array.mean()), float(se), len(array))


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> Estimate | None:
    """The mean difference over shared seeds; None below three of them."""
    shared = sorted(one.keys() & other.keys())
    return estimate([one[seed] - other[seed] for seed in shared]) if len(shared) >= FEWEST else None


def band(runs: Sequence[Series]) -> Band | None:
    """The mean over runs, step by step, where every run has a value; None if there is no such step."""
    shared: np.ndarray = functools.reduce(np.intersect1d, [run.steps for run in runs] or [np.array([])])
    if not len(shared):
        return None
    table = np.stack([run.values[np.isin(run.steps, shared)] for run in runs])
    n = len(runs)
    se = table.std(axis=0, ddof=1) / math.sqrt(n) if n > 1 else np.full(len(shared), math.nan)
    return Band(shared, table.mean(axis=0), se, n)


def window_length(steps: int) -> int:
    """How many steps are averaged into one point of a curve."""
    return max(1, math.ceil(steps / MAX_POINTS))


def windowed(series: Series, length: int) -> Series:
    """Means over windows of `length` steps counted from step 1, each placed at its last step; whole windows only.

    A run that logs only every few steps has fewer values in a whole window, and not the same number in each.
    """
    window = (series.steps - 1) // length
    ids, index, counts = np.unique(window, return_inverse=True, return_counts=True)
    sums = np.zeros(len(ids))
    np.add.at(sums, index, series.values)
    every = float(np.median(np.diff(series.steps))) if len(series.steps) > 1 else 1.0
    ended = (ids + 1) * length < series.steps[-1:].max(initial=0) + every
    whole = ended & (counts >= max(1, math.floor(length / every)))
    return Series((ids[whole] + 1) * length, sums[whole] / counts[whole])


def final(series: Series, last: int, tail: bool) -> float | None:
    """The value at step `last` (an evaluation), or the mean over the last tenth of the steps up to it (training)."""
    span = max(1, math.ceil(TAIL * last)) if tail else 1
    found = series.values[(series.steps > last - span) & (series.steps <= last)]
    return float(found.mean()) if len(found) else None


def gaps(steps: np.ndarray) -> np.ndarray:
    """Positions after which a step is missing, so that no line is drawn across missing steps."""
    if len(steps) < 3:
        return np.array([], dtype=int)
    jumps = np.diff(steps)
    return np.flatnonzero(jumps > 1.5 * np.median(jumps))


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
