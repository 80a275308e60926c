"""The tables of PREDICTIONS.md: do shared errors decide how training ends, or does the loss?

python examples/results/shared-errors/shared_errors.py         # of the ten fresh seeds
python examples/results/shared-errors/shared_errors.py rates   # of the two seeds that choose run.sh's rates
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Arm, arms, paired, pm

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


def tests(ends: dict[tuple[str, str], np.ndarray]) -> None:
    """Paired by seed, of pass@1 at the end by method and error."""
    methods = METHODS.values()
    sharing = {f"kind minus random, {method}": ends[method, "kind"] - ends[method, "random"] for method in methods}
    loss = {
        f"REAL minus {other}, {error}": ends["REAL", error] - ends[other, error]
        for error in ("random", "kind")
        for other in methods
        if other != "REAL"
    }
    for family in (sharing, loss):
        for title, (gap, p) in paired(family).items():
            print(f"{title}: {gap}, Holm's p {p:.3g}")


def main(words: list[str]) -> None:
    found = cells(TRIED if words == ["rates"] else FRESH)
    print("|method|error|rate|runs|pass@1 at the end|lost|\n|---|---|---:|---:|---:|---:|")
    for cell, arm in found.items():
        print(f"|{'|'.join(cell)}|{len(arm.runs)}|{pm(arm.ends())}|{lost(arm)}|")
    if words != ["rates"]:
        tests({(method, error): arm.ends() for (method, error, _), arm in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
