"""The tables of PREDICTIONS.md: do REAL's weights act, and help, at 7, 32 and 127 tokens?

python examples/results/scratchpad/by_length.py         # of the eight seeds
python examples/results/scratchpad/by_length.py rates   # of the two seeds that choose run.sh's rates and temperatures
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import arms, holm, paired, pm

ROUNDS, STEPS, TRIED, FRESH = (0, 5, 24), 20, range(401, 403), range(403, 411)
Z = 0.15  # that the smaller temperature is to have


def main(words: list[str]) -> None:
    seeds = TRIED if words == ["rates"] else FRESH
    of_length = {5 * rounds + 7: arms(f"scratchpad/{rounds}", "(.+)", STEPS, seeds) for rounds in ROUNDS}
    print("|tokens|arm|runs|over training|last|z|angle|\n|---:|---|---:|---:|---:|---:|---:|")
    for tokens, found in of_length.items():
        for (name,), arm in found.items():
            # between REAL's gradient and that of fixed weights, of the mean update
            angle = math.degrees(math.atan(arm.mean("real/weight_cv")))
            row = f"|{tokens}|{name}|{len(arm.runs)}|{pm(arm.means())}|{pm(arm.ends())}|{arm.z:.3f}|{angle:.1f}°|"
            print(row + (f" τ for z = {Z}: {0.5 * arm.z / Z:.4f}" if seeds is TRIED else ""))
    if seeds is TRIED:
        return
    for one, other in (("smaller τ", "fixed weights"), ("smaller τ", "τ 0.5"), ("τ 0.5", "fixed weights")):
        differences = {}
        for tokens, found in of_length.items():
            means = {arm_of(name): arm.means() for (name,), arm in found.items()}
            differences[f"{one} minus {other}, {tokens} tokens"] = means[one] - means[other]
        family = paired(differences)
        equivalent = holm([gap.p_equivalent for gap, _ in family.values()])
        for (title, (gap, p)), same in zip(family.items(), equivalent, strict=True):
            print(f"{title}: {gap}, p {p:.3g}, for equivalence {same:.3g}")


def arm_of(name: str) -> str:
    return "fixed weights" if name.startswith("real_fixed_weights") else "smaller τ" if "-tau-" in name else "τ 0.5"


if __name__ == "__main__":
    main(sys.argv[1:])
