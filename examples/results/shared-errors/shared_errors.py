"""The tables of PREDICTIONS.md: do shared errors decide how training ends, or does the loss?

python examples/results/shared-errors/shared_errors.py         # of the ten fresh seeds
python examples/results/shared-errors/shared_errors.py rates   # of the two seeds that choose run.sh's rates
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Gap, Run, campaign, holm, pm

METHODS = {"real": "REAL", "grpo": "GRPO", "dapo": "DAPO", "real-objective": "unbiased_bce"}
NAME = re.compile(rf"({'|'.join(sorted(METHODS, reverse=True))})-.*_(random|kind)\.jsonl-lr-(.+)-batch_size-64-s\d+")
ERRORS, TRIED, FRESH = ("random", "kind"), range(301, 303), range(303, 313)


def cells(seeds: range) -> dict[tuple[str, str, str], list[Run]]:
    """Runs by method, error and rate, in the order of the seeds."""
    found = defaultdict(list)
    for name, run in sorted(campaign("shared-errors").items()):
        if run.seed in seeds:
            method, error, rate = NAME.fullmatch(name).groups()
            found[METHODS[method], error, rate].append(run)
    assert all([run.seed for run in runs] == [*seeds] for runs in found.values())  # else pairs are of two seeds
    return found


def ends(runs: list[Run]) -> np.ndarray:
    return np.array([run.curve(30)[30] for run in runs])


def lost(runs: list[Run]) -> int:
    called_right = np.array([run.of("rollout/reward_mean")[-1] for run in runs])
    return int(((ends(runs) < 0.2) & (called_right > 0.9)).sum())


def tests(of: dict[tuple[str, str], np.ndarray]) -> None:
    """Paired by seed, of pass@1 at the end by method and error."""
    methods = METHODS.values()
    sharing = {method: of[method, "kind"] - of[method, "random"] for method in methods}
    loss = {(other, error): of["REAL", error] - of[other, error] for error in ERRORS for other in methods}
    loss = {f"REAL minus {other}, {error}": gap for (other, error), gap in loss.items() if other != "REAL"}
    for family in ({f"kind minus random, {method}": gap for method, gap in sharing.items()}, loss):
        gaps = {title: Gap.paired(differences) for title, differences in family.items()}
        for (title, gap), p in zip(gaps.items(), holm([gap.p for gap in gaps.values()]), strict=True):
            print(f"{title}: {gap.mean:+.3f} ± {gap.se:.3f}, Holm's p {p:.3g}")


def main(words: list[str]) -> None:
    found = cells(TRIED if words == ["rates"] else FRESH)
    print("|method|error|rate|runs|pass@1 at the end|lost|\n|---|---|---:|---:|---:|---:|")
    for cell, runs in sorted(found.items(), key=lambda one: ([*METHODS.values()].index(one[0][0]), one[0][1:])):
        print(f"|{'|'.join(cell)}|{len(runs)}|{pm(ends(runs))}|{lost(runs)}|")
    if words != ["rates"]:
        tests({(method, error): ends(runs) for (method, error, _), runs in found.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
