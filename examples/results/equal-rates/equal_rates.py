"""The tables of PREDICTIONS.md: does the fall at the end follow the learning rate or the loss?"""

import sys
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Gap, campaign, holm
from endings.endings import drops, fallen, fisher, show

METHODS, RATES, SEEDS = ("REAL", "GRPO"), ("2e-4", "3e-4"), range(201, 217)
Cell = tuple[str, str]  # method, rate
T = 2.1314  # the 97.5th percentile of Student's t with 15 degrees of freedom


def cells() -> dict[Cell, list[list[float]]]:
    """Curves after step 0, by method and rate, in the order of the seeds."""
    runs, found = campaign("equal-rates"), {}
    for method, rate in product(METHODS, RATES):
        names = [f"{method.lower()}-lr-{rate}-batch_size-64-s{seed}" for seed in SEEDS]
        found[method, rate] = [[v for step, v in sorted(runs[name].curve(30).items()) if step > 0] for name in names]
    return found


class Effect(NamedTuple):
    gap: Gap
    low: float
    high: float
    p: float  # Holm's, over both


def main_effects(curves: dict[Cell, list[list[float]]]) -> dict[str, Effect]:
    """Of the drop: 3e-4 minus 2e-4, and GRPO minus REAL, each paired by seed."""
    drop = {cell: drops(found) for cell, found in curves.items()}
    (low, high), (real, grpo) = RATES, METHODS
    effects = {
        "rate": (drop[real, high] - drop[real, low] + drop[grpo, high] - drop[grpo, low]) / 2,
        "loss": (drop[grpo, low] - drop[real, low] + drop[grpo, high] - drop[real, high]) / 2,
    }
    gaps = [Gap.paired(differences) for differences in effects.values()]
    ends = [(gap.mean - T * gap.se, gap.mean + T * gap.se) for gap in gaps]
    ps = holm([gap.p for gap in gaps])
    return {name: Effect(gap, *end, p) for name, gap, end, p in zip(effects, gaps, ends, ps, strict=True)}


def falls(curves: dict[Cell, list[list[float]]]) -> dict[tuple[Cell, Cell], tuple[int, int, float]]:
    """Between rates within a method, and between methods within a rate: both counts, and Holm's p over the four."""
    pairs = [((m, RATES[0]), (m, RATES[1])) for m in METHODS] + [((METHODS[0], r), (METHODS[1], r)) for r in RATES]
    counts = [(fallen(curves[a]), fallen(curves[b])) for a, b in pairs]
    ps = holm([fisher(*count, len(SEEDS), len(SEEDS)) for count in counts])
    return {pair: (*count, p) for pair, count, p in zip(pairs, counts, ps, strict=True)}


def over_training(curves: dict[Cell, list[list[float]]], rate: str) -> Gap:
    """REAL minus GRPO."""
    return Gap.of(*(np.mean(curves[method, rate], axis=1) for method in METHODS))


def main() -> None:
    curves = cells()
    print("|place|arm|rate|runs|fell|by the last alone|best less the last two|over training|")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for (method, rate), of_cell in curves.items():
        show("4 updates", method, rate, of_cell)
    for name, one in main_effects(curves).items():
        print(
            f"drop, effect of the {name}: {one.gap.mean:+.3f}, 95 % {one.low:+.3f} to {one.high:+.3f}, p {one.p:.3g}"
        )
    for (a, b), (of_a, of_b, p) in falls(curves).items():
        print(f"fell, {' '.join(a)} and {' '.join(b)}: {of_a} and {of_b}, p {p:.3g}")
    for rate in RATES:
        gap = over_training(curves, rate)
        same = f"p for equivalence {gap.p_equivalent:.3g}"
        print(f"REAL minus GRPO over training at {rate}: {gap.mean:+.3f} ± {gap.se:.3f}, {same}")


if __name__ == "__main__":
    main()
