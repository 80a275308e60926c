"""What the pages say with measured numbers: the table of claims, and sentences. check.py computes the numbers."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from check import (
    AGAIN,
    BALANCED,
    COMPUTES,
    CONCLUSIONS,
    FIXED,
    NEITHER,
    OWN,
    PLACES,
    PM,
    README,
    RESULTS,
    SAMPLER,
    TRIED,
    Gap,
    arm,
    between,
    by_learning_rate,
    by_rate,
    campaign,
    cells,
    conclusions,
    multiple,
    pm,
    spread_cells,
    times,
    tried,
)

# Table 1 of the paper: percent of the tokens, mean ratio (none where the gradient is clipped), range of ratios
TABLE_1 = {
    "correct": (
        (0.22, 0.6943, 0, 0.8),
        (4.83, 0.9788, 0.8, 1),
        (94.63, 1.0010, 1, 1.2),
        (0.32, None, 1.2, math.inf),
    ),
    "incorrect": (
        (0.24, None, 0, 0.8),
        (5.47, 0.9774, 0.8, 1),
        (93.95, 1.0012, 1, 1.2),
        (0.34, 1.3553, 1.2, math.inf),
    ),
}
TAU = 0.5  # the paper's
PRETRAINED = ("pretrained", "pretrained, again")
SIXTEEN = ("16 updates", "16 updates, 3e-4")  # each method at its own learning rate; one for all
GIVEN = ("within 0.03", "τ = 0.02")  # chosen, not measured


# The table of claims


@dataclass(frozen=True)
class Claim:
    """A row: a place, and the arms of which the claim says that the first is the better one."""

    paper: str
    place: str
    arms: tuple[str, str]
    preregistered: bool = False
    part: str = ""  # what the first arm lacks of the second; nothing else may differ


def claims() -> Iterator[Claim]:
    for place in ("4 updates", "hard task", *PRETRAINED, *SIXTEEN):
        yield Claim("REAL > fixed weights", place, ("REAL", FIXED), place != "pretrained")
    yield Claim(f"REAL > {BALANCED}", SIXTEEN[0], ("REAL", BALANCED), True)
    for place in (SIXTEEN[1], "stale"):
        yield Claim("surrogate without ratio > with ratio", place, ("ratio none", "ratio both"), True, "ratio")
    for place in SIXTEEN:
        yield Claim("REAL > that surrogate without ratio", place, ("REAL", "ratio none"), True)
    yield Claim("with clip > without, both without ratio", SIXTEEN[0], ("ratio none", NEITHER), True)
    for other, where in (
        ("REINFORCE", ("1 update",)),
        ("GRPO", ("1 update", "4 updates", "hard task", *PRETRAINED, *SIXTEEN)),
        ("DAPO", ("4 updates", "hard task", "pretrained, again")),
        ("GSPO", ("4 updates", "hard task", *PRETRAINED, *SIXTEEN)),
    ):
        for place in where:
            clip = "" if other != "GSPO" else ", clip 0.2/0.3" if place == SIXTEEN[0] else ", paper's clip"
            yield Claim(f"REAL > {other}{clip}", place, ("REAL", other), place != "pretrained")
    yield Claim("τ 0.5 > τ 0.1", "queue of 4", ("REAL", "tau 0.1"), True)


@functools.cache
def concluded(place: str, pair: tuple[str, str]) -> tuple[Gap, str, int]:
    """The difference with its conclusion and how many comparisons the correction is over."""
    one = pair[0]
    if pair == ("ratio none", NEITHER):
        family = [pair, ("REAL", BALANCED)]  # as PREDICTIONS.md of rates-16 says
    elif one.startswith("ratio"):
        family = [(f"ratio {side}", "ratio both") for side in ("right", "wrong", "none")]
    elif place in PLACES and one == "REAL":
        family = [("REAL", label) for label in PLACES[place] if label != "REAL"]
    else:
        family = [pair]
    gaps = [between(place, *arms) for arms in family]
    index = family.index(pair)
    return gaps[index], conclusions(gaps)[index], len(family)


def table() -> Iterator[list[str]]:
    before = ""
    for claim in claims():
        one, other = claim.arms
        if claim.part:
            assert COMPUTES[other] - COMPUTES[one] == {claim.part} and COMPUTES[one] < COMPUTES[other], claim
        gap, conclusion, rows = concluded(claim.place, claim.arms)
        if conclusion == CONCLUSIONS[3]:
            conclusion += f" ({gap.detectable(rows):.2f})"
        end = Gap.of(arm(claim.place, one).ends(), arm(claim.place, other).ends())
        numbers = (f"{found.mean:+.3f}{PM}{found.se:.3f}" for found in (gap, end))
        rates = "/".join(times(multiple(claim.place, label)) for label in claim.arms)
        seeds = str(min(len(arm(claim.place, label).runs) for label in claim.arms))
        title = claim.paper if claim.paper != before else ""
        before = claim.paper
        yield [title, claim.place, *numbers, rates, seeds, "yes" * claim.preregistered, conclusion]


def tables() -> dict[str, Callable[[], Iterator[list[str]]]]:
    return {"check claims": table}


@functools.cache
def facts() -> dict[str, tuple[str, tuple[float | None, ...], str]]:
    """Every difference of two arms of one place as a page prints it, with the place, the arms' rates over their best,
    and the conclusion."""
    found = {}
    others = [(SIXTEEN[1], ("REAL", label)) for label in (BALANCED, "CISPO", "REINFORCE")]
    for place, pair in (*((claim.place, claim.arms) for claim in claims()), *others):
        gap, conclusion, _ = concluded(place, pair)
        found[size(gap)] = place, tuple(multiple(place, label) for label in pair), conclusion
    return found


# Sentences


def sentences() -> dict[Path, list[str]]:
    return {RESULTS: [*results(), *GIVEN], README: [*readme()]}


def readme() -> Iterator[str]:
    yield collapses_by_rate()
    for place in ("4 updates", "hard task", *PRETRAINED, *SIXTEEN):
        real, grpo = arm(place, "REAL"), arm(place, "GRPO")
        found = Gap.of(real.means(), grpo.means()), Gap.of(real.ends(), grpo.ends())
        yield "|".join(f"{gap.mean:+.3f} {PM} {gap.se:.3f}" for gap in found)


def results() -> Iterator[str]:
    decided = [claim for claim in claims() if concluded(claim.place, claim.arms)[1] in CONCLUSIONS[:2]]
    own = [claim for claim in decided if [times(multiple(claim.place, label)) for label in claim.arms] == ["1", "1"]]
    assert {claim.paper for claim in own} == {"REAL > GSPO, paper's clip", "τ 0.5 > τ 0.1"}
    yield f"Of {len(decided)} winners below, {len(own)} are at both best rates"
    yield f"z|not reported|0 to {sums().z:.2f}|"
    least, most = zip(*map(table_1, TABLE_1), strict=True)
    yield f"a standard deviation of at least {math.floor(1000 * min(least)) / 1000:.3f}"
    yield "at most {:.2f} (correct) or {:.2f} (incorrect)".format(*(spread / TAU for spread in most))
    kl = [median_kl(label) for label in ("REAL", "GRPO")]
    yield f"`ppo_kl` {kl[0]:.3f}, GRPO's {kl[1]:.3f}, medians"
    by_length = {tokens: lengths(tokens) for tokens in (9, 64, 256)}
    spread = [np.mean([z for z, _ in runs]) for runs in by_length.values()]
    yield "z was {:.3f}, {:.3f} and {:.3f} at 9, 64 and 256 tokens".format(*spread)
    assert all(together < 2 for runs in by_length.values() for _, together in runs)  # prediction L1 failed
    assert all(long < short / 2 for (long, _), (short, _) in zip(by_length[256], by_length[9], strict=True))  # L2 held
    near, some = ([cell for cell in cells() if low < cell.z <= high] for low, high in ((-1, 0.03), (0.03, 0.1)))
    yield f"{pm(gains(near))} in the {len(near)} settings with z up to 0.03"
    yield f"{pm(gains(some))} in the {len(some)} from there to 0.1"
    yield collapses_by_rate()
    yield f"Summed scores (z {sums().z:.2f}, 1.5 times the best rate): REAL gained {sums().gain:.3f}"
    yield from rates_of_16()
    lower = [real_minus(label) for label in ("CISPO", "REINFORCE")]
    yield f"keep the ratio and drop GRPO's clip and KL: {' and '.join(lower)} lower than REAL"
    clip = [100 * clipped(place, "GSPO") for place in ("4 updates", "hard task", SIXTEEN[1], *PRETRAINED)]
    yield f"it drops {min(clip):.0f} to {max(clip):.0f} % of the tokens"
    queue = "queue of 4"
    adds = [size(between(queue, label, "REAL")) for label in (SAMPLER, "tau 0.1")]
    yield f"Scores against the rollout policy add {adds[0]}, τ = 0.1 adds {adds[1]}"
    assert multiple(queue, "tau 0.1") == multiple(queue, "REAL") == 1
    assert arm(queue, "tau 0.1").rate == 2 * arm(queue, "REAL").rate  # "at twice the learning rate"
    best = "rollout policy, tau 0.1"
    alike = [between(queue, best, other) for other in ("VESPO", "GRPO corrected")]
    assert conclusions(alike) == [CONCLUSIONS[2]] * 2
    assert [round(age("queue of 8", step)) for step in (11, 16)] == [5, 8]
    yield f"from {pm(arm('a machine', 'REAL').ends())} to {pm(arm('another machine', 'REAL').ends())}"
    assert np.sign(end_gap("a machine")) != np.sign(end_gap("another machine"))  # "reverses GRPO minus REAL"
    assert made_again() == 80


def rates_of_16() -> Iterator[str]:
    """16 updates: what the rates that were tried say, and the predictions of rates-16, A1 to A4."""
    means = {label: {rate: np.mean(seeds) for rate, seeds in tried("16 updates", label).items()} for label in OWN}
    assert all(max(found, key=lambda rate: found[rate]) == 1e-4 for found in means.values())
    assert all(len(found) == 5 for found in means.values())
    tested = [arm(SIXTEEN[0], label).means().mean() for label in OWN]
    yield f"there 16 other seeds give {min(tested):.2f} to {max(tested):.2f}"
    within = {label: sum(mean > found[1e-4] - 0.1 for mean in found.values()) - 1 for label, found in means.items()}
    found = {number: [label for label in OWN if within[label] == number] for number in (3, 2, 1)}
    assert found == {3: ["REAL", BALANCED, "GSPO", "ratio none"], 2: ["GRPO", NEITHER], 1: [FIXED]}
    misses = means[FIXED][1e-4] - 0.1 - means[FIXED][1.5e-4]
    yield "3 with REAL, balanced and GSPO; 3 with the surrogate without ratio; 2 with GRPO and the unclipped surrogate"
    yield f"1 with fixed weights (another misses by {misses:.3f})"
    clips = [np.mean(by_learning_rate(TRIED["16 updates"], name)[1e-4][:1]) for name in (OWN["GSPO"], "gspo")]
    yield f"At 1e-4 with 16 updates it scores {clips[1]:.2f}, with 0.2/0.3 {clips[0]:.2f} (seed 1)"
    gap, conclusion, _ = concluded(SIXTEEN[0], ("REAL", FIXED))
    others = {label: concluded(SIXTEEN[0], ("REAL", label)) for label in OWN if label != "REAL"}
    neither = arm(SIXTEEN[0], NEITHER)
    verdicts = [conclusion, others["GRPO"][1], concluded(SIXTEEN[0], ("ratio none", NEITHER))[1]]
    held = {
        "REAL higher than fixed weights": verdicts[0] == CONCLUSIONS[0] and gap.mean < 0.12,
        "GRPO equivalent": verdicts[1] == CONCLUSIONS[2] and all(-found.mean < 0.05 for found, *_ in others.values()),
        "REAL more such rates": within["REAL"] > within[FIXED],
        "the surrogate without ratio lower if unclipped": verdicts[2] == CONCLUSIONS[0],
    }
    yield "; ".join(f"{name} ({'held' if holds else 'failed'})" for name, holds in held.items())
    assert verdicts == [CONCLUSIONS[3]] * 3  # "each failure is inconclusive"
    yield f"The unclipped surrogate collapsed in {neither.collapses()} of {len(neither.runs)} at its own"


def table_1(side: str) -> tuple[float, float]:
    """The least spread of log-ratios that has these bins, and the largest with every ratio within 1/4 to 4."""
    least = most = 0.0
    for share, ratio, low, high in TABLE_1[side]:
        low, high = max(low, 1 / 4), min(high, 4)
        if ratio is None:  # of a clipped bin only the near end is known
            near, far = sorted((abs(math.log(low)), abs(math.log(high))))
            least, most = least + share / 100 * near**2, most + share / 100 * far**2
            continue
        above = (ratio - low) / (high - low)  # all mass at the ends of a bin
        least += share / 100 * math.log(ratio) ** 2
        most += share / 100 * ((1 - above) * math.log(low) ** 2 + above * math.log(high) ** 2)
    return math.sqrt(least), math.sqrt(most)


def lengths(tokens: int) -> list[tuple[float, float]]:
    """z and D of each run of `length`, by its PREDICTIONS.md. The log has means of two updates, one of 0."""
    found = []
    for run in campaign("length").values():
        if f"tokens-{tokens}-" in run.name:
            std, kl, length = (
                np.array([*run.train[key].values()])
                for key in ("real/score_std", "kl_old", "rollout/response_length_mean")
            )
            variance, of_a_token = (2 * std) ** 2, 2 * 2 * kl
            found.append((float(np.mean(2 * std) / TAU), float(np.mean(variance * length / of_a_token))))
    return found


def median_kl(label: str) -> float:
    """Over steps, of the pretrained model's runs at one learning rate."""
    runs = arm("pretrained, again", label).runs.values()
    return float(np.mean([np.median([*run.train["ppo_kl"].values()]) for run in runs]))


def clipped(place: str, label: str) -> float:
    return float(
        np.mean([np.mean([*run.train["ppo_clip_ratio"].values()]) for run in arm(place, label).runs.values()])
    )


def gains(found: Sequence) -> np.ndarray:
    return np.array([cell.gain for cell in found])


def collapses_by_rate() -> str:
    """Where z is above 0.1: at REAL's best learning rate, up to twice it, and beyond."""
    rows = [(float(row[1]), *map(int, row[2:5])) for row in by_rate()]
    parts = [[row[1:] for row in rows if low < row[0] <= high] for low, high in ((0, 1), (1, 2), (2, math.inf))]
    at, near, far = ([sum(column) for column in zip(*part, strict=True)] for part in parts)
    assert at[2] == 0
    up_to = f"in {at[1]} of {at[0]} runs at REAL's best learning rate, {near[1]} of {near[0]} up to twice it"
    return f"{up_to} (REAL: {near[2]}), {far[1]} of {far[0]} beyond (REAL: {far[2]})"


def sums():
    (cell,) = (cell for cell in spread_cells() if cell.name.startswith("weights-sums"))
    return cell


def made_again() -> int:
    """How many runs of `table` have equals, in each number but the times; all must."""
    first, again = campaign(AGAIN.replace("-skill", "")), campaign(AGAIN)
    for name in {*first, *again}:
        one, other = ({**run.train, "timing/step_total": {}} for run in (first[name], again[name]))
        assert (one, first[name].evals) == (other, again[name].evals), name
    return len(first)


def real_minus(label: str) -> str:
    return size(between(SIXTEEN[1], "REAL", label))


def age(place: str, step: int) -> float:
    """How many steps old the responses of a step are: since the held-out pass@1 was their pass rate. Mean over runs
    that are well between their first and last pass@1 then. `next/PREDICTIONS.md` quotes it."""
    found = []
    for run in (run for label in PLACES[place] for run in arm(place, label).runs.values()):
        steps, rate = np.linspace(0, 30, 3001), run.train["rollout/pass_rate"][step]
        evaluated = sorted(run.evals)
        known = np.maximum.accumulate(np.interp(steps, evaluated, [run.evals[step] for step in evaluated]))
        if known[0] + 0.1 < rate < min(0.75, known[-1] - 0.05):
            found.append(step - 1 - steps[np.searchsorted(known, rate)])
    return float(np.mean(found))


def size(gap: Gap) -> str:
    return f"{abs(gap.mean):.3f} {PM} {gap.se:.3f}"


def end_gap(place: str) -> float:
    return float(arm(place, "GRPO").ends().mean() - arm(place, "REAL").ends().mean())
