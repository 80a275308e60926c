"""The tables of PREDICTIONS.md: do REAL's weights act, and help, where 7, 32 and 127 tokens are asked for?

python examples/results/scratchpad/by_length.py               # of the eight seeds
python examples/results/scratchpad/by_length.py alone         # of the model that writes 24 rounds alone
python examples/results/scratchpad/by_length.py again         # of that model once more, without clipping
python examples/results/scratchpad/by_length.py rates alone   # of the two seeds that choose the rate and τ
"""

import math
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Arm, Gap, arms, holm, paired, pm

STEPS, TRIED, FRESH, AGAIN = 20, range(401, 403), range(403, 411), range(411, 427)
FIRST, ALONE = {7: "0", 32: "5", 127: "24"}, {127: "alone"}  # {tokens that are asked for: folder of runs}
Z, DEGREES = 0.15, 8  # at which τ′ aims: in the first try, and where the model writes 24 rounds alone
PAIRS = ("smaller τ", "fixed weights"), ("smaller τ", "τ 0.5"), ("τ 0.5", "fixed weights")


def cells(folders: dict[int, str] = FIRST, seeds: range = FRESH) -> dict[int, dict[str, Arm]]:
    """By the tokens that are asked for and the name of the runs."""
    names = {tokens: arms(f"scratchpad/{folder}", "(.+)", STEPS, seeds) for tokens, folder in folders.items()}
    return {tokens: {name: arm for (name,), arm in found.items()} for tokens, found in names.items()}


def method(name: str) -> str:
    return "fixed weights" if name.startswith("real_fixed_weights") else "smaller τ" if "-tau-" in name else "τ 0.5"


def length(arm: Arm) -> float:
    return arm.mean("rollout/response_length_mean")


def angle(arm: Arm) -> float:
    """In degrees, between REAL's gradient and that of fixed weights, of the mean update."""
    return math.degrees(math.atan(arm.mean("real/weight_cv")))


def tests(found: dict[int, dict[str, Arm]]) -> Iterator[tuple[str, Gap, float, float]]:
    """The difference of two arms at each length, and p of a difference and of equivalence, with Holm over lengths."""
    for one, other in PAIRS:
        differences = {}
        for tokens, named in found.items():
            means = {method(name): arm.means() for name, arm in named.items()}
            if one in means and other in means:
                differences[f"{one} minus {other}, {tokens} asked"] = means[one] - means[other]
        family = paired(differences)
        equivalent = holm([gap.p_equivalent for gap, _ in family.values()])
        yield from ((title, gap, p, same) for (title, (gap, p)), same in zip(family.items(), equivalent, strict=True))


def main(words: list[str]) -> None:
    seeds = TRIED if "rates" in words else AGAIN if "again" in words else FRESH
    found = cells(ALONE if {"alone", "again"} & {*words} else FIRST, seeds)
    print("|asked|written|arm|runs|over training|last|z|angle|\n|---:|---:|---|---:|---:|---:|---:|---:|")
    for tokens, named in found.items():
        for name, arm in named.items():
            row = f"|{tokens}|{length(arm):.0f}|{name}|{len(arm.runs)}|{pm(arm.means())}|{pm(arm.ends())}|"
            row += f"{arm.z:.3f}|{angle(arm):.1f}°|"
            if seeds is TRIED:
                turned = 0.5 * arm.mean("real/weight_cv") / math.tan(math.radians(DEGREES))
                row += f" τ for z = {Z}: {0.5 * arm.z / Z:.4f}, for {DEGREES}°: {turned:.4f}"
            print(row)
    for title, gap, p, same in tests(found) if seeds is not TRIED else ():
        print(f"{title}: {gap}, p {p:.3g}, for equivalence {same:.3g}")


if __name__ == "__main__":
    main(sys.argv[1:])
