"""Do REAL's weights act, and help, where 7, 32 and 127 tokens are asked for? What PREDICTIONS.md says of the runs.

python examples/results/scratchpad/by_length.py   # of the two seeds that choose the rate and τ
"""

import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from check import Arm, Gap, arms, chance, holm, paired, pm

STEPS, TRIED, FRESH, AGAIN = 20, range(401, 403), range(403, 411), range(411, 427)
FIRST, ALONE = {7: "0", 32: "5", 127: "24"}, {127: "alone"}  # {tokens that are asked for: folder of runs}
TAU = 0.5  # the paper's
Z, DEGREES = 0.15, 8  # at which τ′ aims: in the first try, and where the model writes 24 rounds alone
PAIRS = ("τ′", "fixed weights"), ("τ′", "τ 0.5"), ("τ 0.5", "fixed weights")


def cells(folders: dict[int, str] = FIRST, seeds: range = FRESH) -> dict[int, dict[str, Arm]]:
    """By the tokens that are asked for and the name of the runs."""
    names = {tokens: arms(f"scratchpad/{folder}", "(.+)", STEPS, seeds) for tokens, folder in folders.items()}
    return {tokens: {name: arm for (name,), arm in found.items()} for tokens, found in names.items()}


def method(name: str) -> str:
    return "fixed weights" if name.startswith("real_fixed_weights") else "τ′" if "-tau-" in name else "τ 0.5"


def length(arm: Arm) -> float:
    return arm.mean("rollout/response_length_mean")


def angle(arm: Arm) -> float:
    """In degrees, between REAL's gradient and that of fixed weights, of the mean update."""
    return math.degrees(math.atan(arm.mean("real/weight_cv")))


def tests(found: dict[int, dict[str, Arm]]) -> Iterator[tuple[str, int, Gap, float, float]]:
    """The difference of two arms at each length, and p of a difference and of equivalence, with Holm over lengths."""
    for one, other in PAIRS:
        differences = {}
        for tokens, named in found.items():
            means = {method(name): arm.means() for name, arm in named.items()}
            if one in means and other in means:
                differences[tokens] = means[one] - means[other]
        family = paired(differences)
        equivalent = holm([gap.p_equivalent for gap, _ in family.values()])
        for (tokens, (gap, p)), same in zip(family.items(), equivalent, strict=True):
            yield f"{one} minus {other}", tokens, gap, p, same


def table(folders: dict[int, str] = FIRST, seeds: range = FRESH) -> Iterator[list[str]]:
    """A row an arm."""
    for tokens, named in cells(folders, seeds).items():
        for name, arm in named.items():
            tau = re.search(r"-tau-([\d.]+)", name)
            label = f"τ {tau[1]}" if tau else method(name)
            numbers = pm(arm.means()), pm(arm.ends()), f"{arm.z:.3f}", f"{angle(arm):.1f}°"
            clipped = f"{100 * arm.mean('update/frac_clipped'):.1f} %"
            yield [str(tokens), f"{length(arm):.0f}", label, str(len(arm.runs)), *numbers, clipped]


def table_of_tests(folders: dict[int, str] = FIRST, seeds: range = FRESH) -> Iterator[list[str]]:
    for title, tokens, gap, *chances in tests(cells(folders, seeds)):
        yield [title, str(tokens), str(gap), *map(chance, chances)]


def sentences() -> Iterator[str]:
    second, third = ([*cells(ALONE, seeds).values()][0] for seeds in (FRESH, AGAIN))
    arms, again = ({method(name): arm for name, arm in found.items()} for found in (second, third))
    (correct,) = {f"{arm.mean('rollout/response_length_correct'):.1f}" for arm in arms.values()}
    yield f"correct responses have {correct} tokens in each arm"
    yield "two seeds, {:.3f} and {:.3f} at 2e-4".format(
        *(run.z for run in cells(ALONE, TRIED)[127]["real-lr-2e-4"].runs)
    )
    assert 6 <= angle(arms["τ′"]) <= 10
    yield f"**E2** held: {angle(arms['τ′']):.1f}°"
    of_second = [*tests({127: second})]
    yield f"with Holm over the three, p {holm([gap.p for _, _, gap, *_ in of_second])[0]:.3f}"
    assert of_second[-1][-1] < 0.05  # E4
    ends = [of["τ′"].ends() - of["fixed weights"].ends() for of in (arms, again)]
    end = Gap.paired(ends[0])
    yield f"At the last evaluation it is {end} (p {end.p:.2f})"
    assert not max(run.of("update/frac_clipped").max() for arm in again.values() for run in arm.runs)
    low, *_, high = sorted(angle(Arm([run], STEPS)) for run in again["τ′"].runs)
    assert 5 <= low and high <= 8
    yield f"**F2 held**: {angle(again['τ′']):.1f}° ({low:.1f}° to {high:.1f}° in a run)"
    ((_, _, _, p, same),) = tests({127: third})
    assert p > 0.05 > same  # F3 and F4
    yield f"the difference is {Gap.paired(ends[1])}"
    both = Gap.paired(np.concatenate([of["τ′"].means() - of["fixed weights"].means() for of in (arms, again)]))
    yield f"are {both} ({len(FRESH) + len(AGAIN)} seeds, p {both.p:.3f})"
    steps: list[list[str]] = []
    for of in (arms, again):
        pairs = zip(of["τ′"].curves(), of["fixed weights"].curves(), strict=True)
        by_step = np.array([[one[step] - other[step] for step in (5, 10, 15, 20)] for one, other in pairs]).mean(0)
        steps.append([f"{mean:+.3f}" for mean in by_step])
    before, here = ("{}, {}, {} and {}".format(*of) for of in steps)
    yield f"the difference is {here} here, and {before} in the second try"
    both = Gap.paired(np.concatenate(ends))
    yield f"both together are {both} (p {both.p:.2f})"


def main() -> None:
    """What the two seeds say that choose the rate and τ."""
    for folders in (FIRST, ALONE):
        for tokens, named in cells(folders, TRIED).items():
            for name, arm in named.items():
                by_z, by_angle = arm.z / Z, arm.mean("real/weight_cv") / math.tan(math.radians(DEGREES))
                print(f"{tokens} asked, {name}: {length(arm):.0f} written, {pm(arm.means())} and z {arm.z:.3f}")
                print(f"    τ for z = {Z}: {TAU * by_z:.4f}, for {DEGREES}°: {TAU * by_angle:.4f}")


if __name__ == "__main__":
    main()
