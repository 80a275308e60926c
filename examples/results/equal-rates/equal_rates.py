"""The tables of PREDICTIONS.md: does the fall at the end follow the learning rate or the loss?"""

import sys
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "endings"))
from check import Gap, campaign, holm
from endings import drops, fallen, fisher, show

METHODS, RATES, SEEDS = ("REAL", "GRPO"), ("2e-4", "3e-4"), range(201, 217)
T = 2.1314  # the 97.5th percentile of Student's t with 15 degrees of freedom


def cells() -> dict[tuple[str, str], list[list[float]]]:
    """Curves after step 0, by method and rate, in the order of the seeds."""
    runs, found = campaign("equal-rates"), {}
    for method, rate in product(METHODS, RATES):
        names = [f"{method.lower()}-lr-{rate}-batch_size-64-s{seed}" for seed in SEEDS]
        found[method, rate] = [[v for step, v in sorted(runs[name].curve(30).items()) if step > 0] for name in names]
    return found


def main_effects(drop: dict[tuple[str, str], np.ndarray]) -> dict[str, Gap]:
    """3e-4 minus 2e-4, and GRPO minus REAL, each paired by seed."""
    (low, high), (real, grpo) = RATES, METHODS
    effects = {
        "rate": (drop[real, high] - drop[real, low] + drop[grpo, high] - drop[grpo, low]) / 2,
        "loss": (drop[grpo, low] - drop[real, low] + drop[grpo, high] - drop[real, high]) / 2,
    }
    return {name: Gap.paired(differences) for name, differences in effects.items()}


def main() -> None:
    curves = cells()
    print("|place|arm|rate|runs|fell|by the last alone|best less the last two|over training|")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for (method, rate), of_cell in curves.items():
        show("4 updates", method, rate, of_cell)
    effects = main_effects({cell: drops(of_cell) for cell, of_cell in curves.items()})
    for (name, gap), p in zip(effects.items(), holm([gap.p for gap in effects.values()]), strict=True):
        low, high = gap.mean - T * gap.se, gap.mean + T * gap.se
        print(f"drop, effect of the {name}: {gap.mean:+.3f}, 95 % {low:+.3f} to {high:+.3f}, Holm's p {p:.3g}")
    pairs = [((m, RATES[0]), (m, RATES[1])) for m in METHODS] + [((METHODS[0], r), (METHODS[1], r)) for r in RATES]
    chances = holm([fisher(fallen(curves[a]), fallen(curves[b]), len(SEEDS), len(SEEDS)) for a, b in pairs])
    for (a, b), p in zip(pairs, chances, strict=True):
        print(f"fell, {' '.join(a)} and {' '.join(b)}: {fallen(curves[a])} and {fallen(curves[b])}, Holm's p {p:.3g}")
    gap = Gap.of(*(np.mean(curves[method, RATES[0]], axis=1) for method in METHODS))
    print(
        f"REAL minus GRPO over training at 2e-4: {gap.mean:+.3f} ± {gap.se:.3f}, p {gap.p_equivalent:.3g} (equivalent)"
    )


if __name__ == "__main__":
    main()
