"""pass@1, its standard errors, and pass@k, over a table of verdicts (problems x samples)."""

import numpy as np

BOOTSTRAPS = 10_000


def pass_at(k: int, verdicts: np.ndarray) -> float:
    """The unbiased estimate of Chen et al. 2021: one minus the share of k-subsets of the samples without a hit."""
    _, n = verdicts.shape
    misses = n - verdicts.sum(axis=1)
    # choose(misses, k) / choose(n, k) as a product of k ratios, none above 1
    steps = np.arange(k)
    all_wrong = np.prod(np.clip(misses[:, None] - steps, 0, None) / (n - steps), axis=1)
    return float(1.0 - all_wrong.mean())


def bootstrap(problem_scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The mean over each of many resampled sets of problems; a problem keeps its samples."""
    n = len(problem_scores)
    # how often each problem is drawn: the same as drawing indices, in less memory
    counts = rng.multinomial(n, np.full(n, 1 / n), size=BOOTSTRAPS)
    return counts @ problem_scores / n


def sampling_error(verdicts: np.ndarray) -> float | None:
    """Standard error of pass@1 on these very problems: what drawing other samples would change."""
    problems, k = verdicts.shape
    if k == 1:
        return None  # one sample a problem says nothing about its spread
    return float(np.sqrt(verdicts.var(axis=1, ddof=1).sum() / k) / problems)


def powers_of_two(k: int) -> list[int]:
    """1, 2, 4, ... and k itself."""
    return sorted({2**i for i in range(k.bit_length())} | {k})
