"""The tables of PREDICTIONS.md: do REAL's weights act, and help, at 7, 32 and 127 tokens?

python examples/results/scratchpad/by_length.py         # of the eight seeds
python examples/results/scratchpad/by_length.py rates   # of the two seeds that choose run.sh's rates and temperatures
"""

import math
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Gap, Run, campaign, holm, pm

ROUNDS, STEPS, TRIED, FRESH = (0, 5, 24), 20, range(401, 403), range(403, 411)
Z = 0.15  # that the smaller temperature is to have


def arms(rounds: int, seeds: range) -> dict[str, list[Run]]:
    """Runs by the name of their arm, in the order of the seeds."""
    found = defaultdict(list)
    for name, run in sorted(campaign(f"scratchpad/{rounds}").items()):
        if run.seed in seeds:
            found[name.rpartition("-s")[0]].append(run)
    assert all([run.seed for run in runs] == [*seeds] for runs in found.values())  # else pairs are of two seeds
    return found


def over_training(runs: list[Run]) -> np.ndarray:
    return np.array([np.mean([value for step, value in run.curve(STEPS).items() if step > 0]) for run in runs])


def angle(runs: list[Run]) -> float:
    """Degrees between REAL's gradient and that of fixed weights, of the mean update."""
    return math.degrees(math.atan(np.mean([run.of("real/weight_cv").mean() for run in runs])))


def main(words: list[str]) -> None:
    seeds = TRIED if words == ["rates"] else FRESH
    of_length = {rounds: arms(rounds, seeds) for rounds in ROUNDS}
    print("|tokens|arm|runs|over training|last|z|angle|\n|---:|---|---:|---:|---:|---:|---:|")
    for rounds, found in of_length.items():
        for arm, runs in found.items():
            z, ends = np.mean([run.z for run in runs]), np.array([run.curve(STEPS)[STEPS] for run in runs])
            row = f"|{len(runs)}|{pm(over_training(runs))}|{pm(ends)}|{z:.3f}|{angle(runs):.1f}°|"
            print(f"|{5 * rounds + 7}|{arm}" + row + (f" τ for z = {Z}: {0.5 * z / Z:.4f}" if seeds is TRIED else ""))
    if seeds is TRIED:
        return
    for other in ("real_fixed_weights-", "real-"):
        gaps = {}
        for rounds, found in of_length.items():
            (tau,) = (runs for arm, runs in found.items() if "tau" in arm)
            (compared,) = (runs for arm, runs in found.items() if arm.startswith(other) and "tau" not in arm)
            gaps[rounds] = Gap.paired(over_training(tau) - over_training(compared))
        for (rounds, gap), p in zip(gaps.items(), holm([gap.p for gap in gaps.values()]), strict=True):
            title = f"smaller τ minus {other[:-1]}, {5 * rounds + 7} tokens"
            print(f"{title}: {gap.mean:+.3f} ± {gap.se:.3f}, p {p:.3g}, for equivalence {gap.p_equivalent:.3g}")


if __name__ == "__main__":
    main(sys.argv[1:])
