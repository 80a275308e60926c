"""Who ended more than 0.1 below its own best? What PREDICTIONS.md says of the runs.

python examples/results/endings/endings.py   # what 32 and 64 runs an arm can show
"""

import sys
from collections.abc import Iterator
from math import comb
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Arm, Gap, arms, holm, pm

FELL, ALPHA = 0.1, 0.05
NO_KL = "GRPO without KL"
METHODS = {"real": "REAL", "grpo": "GRPO", "grpo-init_coef-0": NO_KL}
CONTRASTS = (("GRPO", "REAL"), ("GRPO", NO_KL))
RATES = {  # each method's best
    "4 updates": {"REAL": "2e-4", "GRPO": "3e-4", NO_KL: "3e-4"},
    "16 updates": {"REAL": "1e-4", "GRPO": "1e-4", NO_KL: "1e-4"},
}
TRIED, TEST = range(1, 4), range(201, 233)  # seeds that chose the third arm's rate, and those of the test
NAME = r"(.+)-lr-([\d.e-]+)-batch_size-(\d+)"
Cell = tuple[str, str, str]  # updates, method, rate


def fisher(a: int, b: int, n: int, m: int) -> float:
    """Two-sided: a of n against b of m."""
    chances = [comb(n, x) * comb(m, a + b - x) for x in range(max(0, a + b - m), min(n, a + b) + 1)]
    seen = comb(n, a) * comb(m, b)
    return sum(chance for chance in chances if chance <= seen) / sum(chances)


def power(p: float, q: float, n: int, alpha: float) -> float:
    def share(of: float, k: int) -> float:
        return comb(n, k) * of**k * (1 - of) ** (n - k)

    found = ((a, b) for a in range(n + 1) for b in range(n + 1) if share(p, a) * share(q, b) > 1e-12)
    return sum(share(p, a) * share(q, b) for a, b in found if fisher(a, b, n, n) < alpha)


def powers() -> None:
    print("|GRPO|other|32, 5 %|32, 2.5 %|64, 5 %|64, 2.5 %|\n|---:|---:|---:|---:|---:|---:|")
    for p, q in ((0.08, 0.0), (0.12, 0.0), (0.16, 0.0), (0.16, 0.02), (0.2, 0.02), (0.25, 0.02), (0.25, 0.05)):
        found = [f"{power(p, q, n, alpha):.2f}" for n in (32, 64) for alpha in (ALPHA, ALPHA / 2)]
        print(f"|{p:.2f}|{q:.2f}|{'|'.join(found)}|")


def cells(seeds: range = TEST) -> dict[Cell, Arm]:
    found = arms("endings", NAME, 30, seeds, complete=False)
    return {(f"{256 // int(batch)} updates", METHODS[name], rate): arm for (name, rate, batch), arm in found.items()}


def by_method() -> dict[str, Arm]:
    """The test's runs of both settings."""
    both: dict[str, Arm] = {}
    for (place, method, rate), arm in cells().items():
        name = method if RATES[place][method] == rate else f"{method}, not at its best rate"
        both.setdefault(name, Arm([], 30)).runs += arm.runs
    return both


def drops(arm: Arm) -> np.ndarray:
    curves = ([*curve.values()] for curve in arm.curves())
    return np.array([max(curve) - np.mean(curve[-2:]) for curve in curves])


def fell(arm: Arm) -> tuple[int, int]:
    """How many runs: by the mean of the last two evaluations, and by the last alone."""
    last = np.array([max(curve.values()) for curve in arm.curves()]) - arm.ends()
    return int((drops(arm) > FELL).sum()), int((last > FELL).sum())


def chances(both: dict[str, Arm]) -> list[float]:
    pairs = [[both[method] for method in pair] for pair in CONTRASTS]
    return holm([fisher(fell(a)[0], fell(b)[0], len(a.runs), len(b.runs)) for a, b in pairs])


def table() -> Iterator[list[str]]:
    rows = [(*cell, arm) for cell, arm in sorted(cells().items()) if RATES[cell[0]][cell[1]] == cell[2]]
    for *row, arm in [*rows, *(("both", method, "", by_method()[method]) for method in sorted(METHODS.values()))]:
        yield [*row, str(len(arm.runs)), *map(str, fell(arm)), pm(drops(arm)), pm(arm.means())]


def over_training(one: str = "REAL", other: str = "GRPO") -> list[Gap]:
    """One method less the other, with 4 and 16 updates."""
    arms = ([cells()[place, method, rates[method]] for method in (one, other)] for place, rates in RATES.items())
    return [Gap.of(*(arm.means() for arm in pair)) for pair in arms]


def sentences() -> Iterator[str]:
    tried = {cell[::2]: arm.means().mean() for cell, arm in cells(TRIED).items()}
    four = (f"{tried['4 updates', rate]:.3f}" for rate in ("3e-4", "2e-4", "1e-4", "6e-4"))
    yield "3e-4 with 4 updates ({} over training; 2e-4 {}, 1e-4 {}, 6e-4 {})".format(*four)
    sixteen = (f"{tried['16 updates', rate]:.3f}" for rate in ("1e-4", "5e-5", "1.5e-4"))
    yield "1e-4 with 16 ({}; 5e-5 {}, 1.5e-4 {})".format(*sixteen)
    both = by_method()
    grpo, real, without = (both[method] for method in ("GRPO", "REAL", NO_KL))
    runs, p = len(grpo.runs), chances(both)
    assert fell(real)[0] == 0
    yield f"GRPO fell in {fell(grpo)[0]} of {runs} runs, REAL in none (p = {p[0]:.3f})"
    yield f"without its KL GRPO fell in {fell(without)[0]} of {runs} (p = {p[1]:.2f})"
    gaps = [Gap.of(drops(a), drops(b)) for a, b in ((grpo, real), (without, grpo))]
    yield f"the drop was {gaps[1].unsigned} larger without it"
    yield f"the drop is {gaps[0].unsigned} larger for GRPO than for REAL (p = {holm([gap.p for gap in gaps])[0]:.3f})"
    four, sixteen = over_training("GRPO", NO_KL)
    assert max(four.p_equivalent, sixteen.p_equivalent) < 0.05
    yield f"{sixteen} with 16 updates, {four} with 4"
    four, sixteen = over_training()
    yield f"over training {four} with 4 updates"
    yield f"{sixteen} with 16"


if __name__ == "__main__":
    powers()
