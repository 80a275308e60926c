"""The tables of PREDICTIONS.md: who ended more than 0.1 below its own best.

python examples/results/endings/endings.py           # of the records beside this script
python examples/results/endings/endings.py power     # what 32 and 64 runs an arm can show
python examples/results/endings/endings.py rates comparison/endings/runs
"""

import json
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


def curve(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    values = [(line["step"], v) for line in lines for key, v in line.items() if re.fullmatch(r"eval_\w+_pass1", key)]
    return [value for step, value in sorted(dict(values).items()) if step > 0]


def rates(runs: Path) -> None:
    means = defaultdict(list)
    for folder in sorted(runs.glob("grpo-init_coef-0-*-s[1-3]")):
        means[folder.name.rpartition("-s")[0]].append(np.mean(curve(folder)))
    for name, values in means.items():
        print(f"{name}: {np.mean(values):.3f} over training ({len(values)} seeds)")


def main() -> None:
    arms, tried = defaultdict(dict), defaultdict(dict)  # the test's runs, and those that chose a rate
    for name, run in campaign("endings").items():
        arm, rate, batch, seed = re.fullmatch(r"(.+)-lr-([\d.e-]+)-batch_size-(\d+)-s(\d+)", name).groups()
        values = [value for step, value in sorted(run.curve(30).items()) if step > 0]
        (arms if int(seed) > 200 else tried)[f"{256 // int(batch)} updates", ARMS[arm], rate][seed] = values
    seeds = set.intersection(*(set(curves) for curves in arms.values()))
    print(f"{len(seeds)} seeds that every arm has\n")
    print("|place|arm|rate|runs|fell|by the last alone|best less the last two|over training|")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    pooled: dict[str, list[list[float]]] = defaultdict(list)
    for (place, arm, rate), by_seed in sorted(arms.items()):
        curves = [by_seed[seed] for seed in sorted(seeds)]
        show(place, arm, rate, curves)
        best = max(
            (key for key in tried if key[:2] == (place, arm)),
            key=lambda key: np.mean([*tried[key].values()]),
            default=None,
        )
        pooled[arm if best in (None, (place, arm, rate)) else f"{arm}, at GRPO's rate"] += curves
    for arm, curves in pooled.items():
        show("both", arm, "", curves)
    pairs = [[pooled[arm] for arm in pair] for pair in CONTRASTS]
    exact = [fisher(sum(drops(a) > FELL), sum(drops(b) > FELL), len(a), len(b)) for a, b in pairs]
    gaps = [Gap.of(drops(a), drops(b)) for a, b in pairs]
    for pair, p, gap, q in zip(CONTRASTS, holm(exact), gaps, holm([gap.p for gap in gaps]), strict=True):
        print(
            f"{' and '.join(pair)}: Fisher p {p:.3g}; drop {gap.mean:+.3f} ± {gap.se:.3f}, p {q:.3g} (Holm over two)"
        )


def drops(curves: list[list[float]]) -> np.ndarray:
    return np.array([max(curve) - np.mean(curve[-2:]) for curve in curves])


def show(place: str, arm: str, rate: str, curves: list[list[float]]) -> None:
    last = sum(max(curve) - curve[-1] > FELL for curve in curves)
    means = np.array([np.mean(curve) for curve in curves])
    fell = sum(drops(curves) > FELL)
    print(f"|{place}|{arm}|{rate}|{len(curves)}|{fell}|{last}|{pm(drops(curves))}|{pm(means)}|")


if __name__ == "__main__":
    {"power": powers, "rates": lambda: rates(Path(sys.argv[2]))}.get("".join(sys.argv[1:2]), main)()
