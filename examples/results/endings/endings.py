"""The tables of PREDICTIONS.md: who ended more than 0.1 below its own best.

python examples/results/endings/endings.py           # of the records beside this script
python examples/results/endings/endings.py power     # what 32 and 64 runs an arm can show
"""

import re
import sys
from collections import defaultdict
from math import comb
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Gap, campaign, holm, pm

FELL, ALPHA = 0.1, 0.05
NO_KL = "GRPO without KL"
ARMS = {"real": "REAL", "grpo": "GRPO", "grpo-init_coef-0": NO_KL}
CONTRASTS = (("GRPO", "REAL"), ("GRPO", NO_KL))
RATES = {  # each method's best
    "4 updates": {"REAL": "2e-4", "GRPO": "3e-4", NO_KL: "3e-4"},
    "16 updates": {"REAL": "1e-4", "GRPO": "1e-4", NO_KL: "1e-4"},
}


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
        cells = [f"{power(p, q, n, alpha):.2f}" for n in (32, 64) for alpha in (ALPHA, ALPHA / 2)]
        print(f"|{p:.2f}|{q:.2f}|{'|'.join(cells)}|")


def read() -> tuple[dict[tuple, list], dict[tuple, list], dict[str, list]]:
    """Curves by (updates, method, rate): of the rates' runs, and of the test's; and both settings' by method."""
    whole, tried = defaultdict(list), defaultdict(list)  # the test's runs, and those that chose a rate
    for name, run in sorted(campaign("endings").items()):
        arm, rate, batch, seed = re.fullmatch(r"(.+)-lr-([\d.e-]+)-batch_size-(\d+)-s(\d+)", name).groups()
        values = [value for step, value in sorted(run.curve(30).items()) if step > 0]
        (whole if int(seed) > 200 else tried)[f"{256 // int(batch)} updates", ARMS[arm], rate].append(values)
    both = defaultdict(list)
    for arm, curves in whole.items():
        both[arm[1] if RATES[arm[0]][arm[1]] == arm[2] else f"{arm[1]}, not at its best rate"] += curves
    return tried, whole, both


def who_fell(curves: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """The runs that fell: by the mean of the last two evaluations, and by the last alone."""
    last = np.array([max(curve) - curve[-1] for curve in curves])
    return np.flatnonzero(drops(curves) > FELL), np.flatnonzero(last > FELL)


def fallen(curves: list) -> int:
    return len(who_fell(curves)[0])


def chances(both: dict[str, list]) -> list[float]:
    pairs = [[both[arm] for arm in pair] for pair in CONTRASTS]
    return holm([fisher(fallen(a), fallen(b), len(a), len(b)) for a, b in pairs])


def main() -> None:
    tried, whole, both = read()
    print("|place|arm|rate|runs|fell|by the last alone|best less the last two|over training|")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for arm, curves in (*sorted(tried.items()), *sorted(whole.items())):
        show(*arm, curves)
    for method, curves in both.items():
        show("both", method, "", curves)
    gaps = [Gap.of(*(drops(both[arm]) for arm in pair)) for pair in CONTRASTS]
    for pair, p, gap, q in zip(CONTRASTS, chances(both), gaps, holm([gap.p for gap in gaps]), strict=True):
        print(f"{' and '.join(pair)}: Fisher p {p:.3g}; drop {gap.mean:+.3f} ± {gap.se:.3f}, p {q:.3g} (both Holm's)")
    for place, rates in RATES.items():
        gap = Gap.of(*(np.mean(whole[place, arm, rates[arm]], axis=1) for arm in CONTRASTS[1]))
        print(f"{place}, over training: {gap.mean:+.3f} ± {gap.se:.3f}, p for equivalence {gap.p_equivalent:.3g}")


def drops(curves: list[list[float]]) -> np.ndarray:
    return np.array([max(curve) - np.mean(curve[-2:]) for curve in curves])


def show(place: str, arm: str, rate: str, curves: list[list[float]]) -> None:
    last = len(who_fell(curves)[1])
    means = np.array([np.mean(curve) for curve in curves])
    print(f"|{place}|{arm}|{rate}|{len(curves)}|{fallen(curves)}|{last}|{pm(drops(curves))}|{pm(means)}|")


if __name__ == "__main__":
    {"power": powers}.get("".join(sys.argv[1:2]), main)()
