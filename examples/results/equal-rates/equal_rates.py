"""The tables of PREDICTIONS.md: does the fall at the end follow the learning rate or the loss?"""

import functools
import sys
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Arm, Gap, arms, holm, paired
from endings.endings import drops, fell, fisher, show

METHODS, RATES, SEEDS = ("REAL", "GRPO"), ("2e-4", "3e-4"), range(201, 217)
T = 2.1314  # the 97.5th percentile of Student's t with 15 degrees of freedom


@functools.cache
def cells() -> dict[tuple[str, str], Arm]:
    """By method and rate."""
    found = arms("equal-rates", r"(real|grpo)-lr-(.+)-batch_size-64", 30, SEEDS)
    return {(method, rate): found[method.lower(), rate] for method, rate in product(METHODS, RATES)}


def main_effects() -> dict[str, tuple[Gap, float]]:
    """Of the drop: 3e-4 minus 2e-4, and GRPO minus REAL, each paired by seed, with Holm's p over both."""
    drop = {cell: drops(arm) for cell, arm in cells().items()}
    (low, high), (real, grpo) = RATES, METHODS
    return paired(
        {
            "rate": (drop[real, high] - drop[real, low] + drop[grpo, high] - drop[grpo, low]) / 2,
            "loss": (drop[grpo, low] - drop[real, low] + drop[grpo, high] - drop[real, high]) / 2,
        }
    )


def interval(effect: Gap) -> tuple[float, float]:
    """95 %."""
    return effect.mean - T * effect.se, effect.mean + T * effect.se


def show_falls() -> None:
    """Between rates within a method, and between methods within a rate, with Holm's p over the four."""
    pairs = [((m, RATES[0]), (m, RATES[1])) for m in METHODS] + [((METHODS[0], r), (METHODS[1], r)) for r in RATES]
    counts = [(fell(cells()[a])[0], fell(cells()[b])[0]) for a, b in pairs]
    ps = holm([fisher(*count, len(SEEDS), len(SEEDS)) for count in counts])
    for (a, b), (of_a, of_b), p in zip(pairs, counts, ps, strict=True):
        print(f"fell, {' '.join(a)} and {' '.join(b)}: {of_a} and {of_b}, p {p:.3g}")


def over_training(rate: str) -> Gap:
    """REAL minus GRPO."""
    return Gap.of(*(cells()[method, rate].means() for method in METHODS))


def main() -> None:
    show(("4 updates", *cell, arm) for cell, arm in cells().items())
    for name, (gap, p) in main_effects().items():
        low, high = interval(gap)
        print(f"drop, effect of the {name}: {gap.mean:+.3f}, 95 % {low:+.3f} to {high:+.3f}, p {p:.3g}")
    show_falls()
    for rate in RATES:
        gap = over_training(rate)
        print(f"REAL minus GRPO over training at {rate}: {gap}, p for equivalence {gap.p_equivalent:.3g}")


if __name__ == "__main__":
    main()
