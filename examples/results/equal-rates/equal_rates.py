"""Does the fall at the end follow the learning rate or the loss? What PREDICTIONS.md says of the runs."""

import functools
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Arm, Gap, arms, holm, paired, pm
from endings.endings import drops, fell, fisher

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


def p_of_falls() -> list[float]:
    """Between rates within a method, and between methods within a rate, with Holm's correction over the four."""
    pairs = [((m, RATES[0]), (m, RATES[1])) for m in METHODS] + [((METHODS[0], r), (METHODS[1], r)) for r in RATES]
    counts = [(fell(cells()[a])[0], fell(cells()[b])[0]) for a, b in pairs]
    return holm([fisher(*count, len(SEEDS), len(SEEDS)) for count in counts])


def over_training(rate: str) -> Gap:
    """REAL minus GRPO."""
    return Gap.of(*(cells()[method, rate].means() for method in METHODS))


def table() -> Iterator[list[str]]:
    for cell, arm in cells().items():
        fallen, last = fell(arm)
        yield [*cell, f"{fallen} of {len(arm.runs)}", str(last), pm(drops(arm)), pm(arm.means())]


def sentences() -> Iterator[str]:
    (rate, p), (loss, _) = main_effects().values()
    ends = "95 % {:.3f} to {:.3f}".format(*interval(rate))
    yield f"the drop is {rate.mean:.3f} larger at 3e-4 ({ends}, Holm's p {p:.3f})"
    ends = "{:.3f} to {:.3f}".format(*interval(loss))
    assert abs(loss.mean) < rate.mean
    yield f"the effect of the loss is {loss.mean:.3f}, smaller than that of the rate, but its interval is {ends}"
    assert p_of_falls() == [1] * 4  # "each Holm's p 1"
    low, high = map(over_training, RATES)
    assert low.p_equivalent < 0.001
    yield f"REAL minus GRPO is {low} (unpaired)"
    yield f"at 3e-4 it is {high}"
