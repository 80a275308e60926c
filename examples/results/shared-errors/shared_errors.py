"""Do shared errors decide how training ends, or does the loss? What PREDICTIONS.md says of the runs.

python examples/results/shared-errors/shared_errors.py   # of the two seeds that choose run.sh's rates
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Arm, Gap, arms, paired, pm

METHODS = {"real": "REAL", "grpo": "GRPO", "dapo": "DAPO", "real-objective": "unbiased_bce"}
NAME = rf"({'|'.join(sorted(METHODS, reverse=True))})-.*_(random|kind)\.jsonl-lr-(.+)-batch_size-64"
TRIED, FRESH = range(301, 303), range(303, 313)


def cells(seeds: range = FRESH) -> dict[tuple[str, str, str], Arm]:
    """By method, error and rate."""
    found = arms("shared-errors", NAME, 30, seeds)
    ordered = sorted(found, key=lambda cell: ([*METHODS].index(cell[0]), *cell))
    return {(METHODS[name], error, rate): found[name, error, rate] for name, error, rate in ordered}


def lost(arm: Arm) -> int:
    called_right = np.array([run.of("rollout/reward_mean")[-1] for run in arm.runs])
    return int(((arm.ends() < 0.2) & (called_right > 0.9)).sum())


def table(seeds: range = FRESH) -> Iterator[list[str]]:
    for (method, error, rate), arm in cells(seeds).items():
        yield [method, error, rate, pm(arm.ends()), f"{lost(arm)} of {len(arm.runs)}"]


def tests() -> dict[str, tuple[Gap, float]]:
    """Paired by seed, of pass@1 at the end: of errors in each method, and of REAL and each other in both errors."""
    ends = {cell[:2]: arm.ends() for cell, arm in cells().items()}
    methods = METHODS.values()
    sharing = {method: ends[method, "kind"] - ends[method, "random"] for method in methods}
    others = [(other, error) for error in ("random", "kind") for other in methods if other != "REAL"]
    loss = {f"{other}, {error}": ends["REAL", error] - ends[other, error] for other, error in others}
    return paired(sharing) | paired(loss)


def sentences() -> Iterator[str]:
    found = tests()
    sharing = [found[method] for method in METHODS.values()]
    assert max(p for _, p in sharing) < 0.01
    *most, last = (f"{gap} ({method})" for (gap, _), method in zip(sharing, METHODS.values(), strict=True))
    yield f"kind minus random is {', '.join(most)} and {last}, each Holm's p (against 0) below 0.01"
    (random, p), (kind, q) = (found[f"GRPO, {error}"] for error in ("random", "kind"))
    yield f"REAL minus GRPO is {random} with random errors and {kind} with a kind"
    assert p == q == 1
    gap, p = found["unbiased_bce, random"]
    yield f"REAL minus unbiased_bce {gap.unsigned}, p {p:.2f}"


if __name__ == "__main__":
    print("method, error, rate, pass@1 at the end, lost", *map(" ".join, table(TRIED)), sep="\n")
