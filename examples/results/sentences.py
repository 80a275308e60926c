"""What the pages say with measured numbers: tables and sentences. check.py computes the numbers."""

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from check import (
    AGAIN,
    BALANCED,
    COMPARISONS,
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
    holm,
    multiple,
    pm,
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
OWN_RATES = ("1 update", "4 updates", *PRETRAINED, SIXTEEN[0])  # where REAL and GRPO both train at their best rate
GIVEN = ("within 0.03", "τ = 0.02", "0.199 ± 0.058")  # chosen, not measured


# The table of comparisons

# Of the page: settings in its order
SETTINGS = {
    "1 update": "A: 1 update",
    "4 updates": "B: 4 updates",
    SIXTEEN[0]: "C: 16 updates",
    SIXTEEN[1]: "D: 16 updates, rate × 3",
    "hard task": "E: hard start",
    PRETRAINED[0]: "F: SmolLM2°",
    PRETRAINED[1]: "G: SmolLM2, repeated",
    "stale": "H: stale",
    "queue of 4": "H: stale",
}


@dataclass(frozen=True)
class Comparison:
    """A row: a setting, and the arms of which the first is less the second."""

    title: str
    place: str
    arms: tuple[str, str]
    part: str = ""  # what the first arm lacks of the second; nothing else may differ


def comparisons() -> Iterator[Comparison]:
    for other, where in (
        ("GRPO", ("1 update", "4 updates", *SIXTEEN, "hard task", *PRETRAINED)),
        ("DAPO", ("4 updates", "hard task", PRETRAINED[1])),
        ("GSPO", ("4 updates", *SIXTEEN, "hard task", *PRETRAINED)),
        (FIXED, ("4 updates", *SIXTEEN, "hard task", *PRETRAINED)),
    ):
        for place in where:
            yield Comparison(f"REAL − {other}", place, ("REAL", other))
    yield Comparison("REAL − balanced REAL", SIXTEEN[0], ("REAL", BALANCED))
    yield Comparison("REAL − REINFORCE", "1 update", ("REAL", "REINFORCE"))
    for place in SIXTEEN:
        yield Comparison("REAL − surrogate without ratio", place, ("REAL", "ratio none"))
    for place in (SIXTEEN[1], "stale"):
        yield Comparison("surrogate without ratio − with ratio", place, ("ratio none", "ratio both"), "ratio")
    yield Comparison("without ratio, with clip − without clip", SIXTEEN[0], ("ratio none", NEITHER))
    yield Comparison("REAL − REAL at τ 0.1", "queue of 4", ("REAL", "tau 0.1"))
    yield Comparison("REAL − GRPO, corrected", "queue of 4", ("REAL", "GRPO corrected"))


@dataclass(frozen=True)
class Verdict:
    """A difference with its conclusion; p-values have Holm's correction over the setting's comparisons."""

    gap: Gap
    conclusion: str
    family: int  # comparisons that the correction is over
    p: float
    p_equivalent: float


@functools.cache
def concluded(place: str, pair: tuple[str, str]) -> Verdict:
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
    ps = holm([gap.p for gap in gaps])[index], holm([gap.p_equivalent for gap in gaps])[index]
    return Verdict(gaps[index], conclusions(gaps)[index], len(gaps), *ps)


def chance(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def shown() -> list[Comparison]:
    """On the page of results: all with GRPO, and the others of REAL that are decided."""
    decided = [row for row in comparisons() if row.arms[0] == "REAL" and is_decided(row)]
    return [row for row in comparisons() if row.arms == ("REAL", "GRPO") or row in decided]


def is_decided(row: Comparison) -> bool:
    return concluded(row.place, row.arms).conclusion in CONCLUSIONS[:2]


def table(rows: Iterable[Comparison]) -> Iterator[list[str]]:
    before = ""
    for row in rows:
        one, other = row.arms
        if row.part:
            assert COMPUTES[other] - COMPUTES[one] == {row.part} and COMPUTES[one] < COMPUTES[other], row
        found = concluded(row.place, row.arms)
        end = Gap.of(arm(row.place, one).ends(), arm(row.place, other).ends())
        numbers = [f"{gap.mean:+.3f}{PM}{gap.se:.3f}" for gap in (found.gap, end)]
        rates = " / ".join(times(multiple(row.place, label)) for label in row.arms)
        seeds = str(min(len(arm(row.place, label).runs) for label in row.arms))
        title = row.title if row.title != before else ""
        before = row.title
        clip = "" if other != "GSPO" else ", clip 0.2/0.3" if row.place == SIXTEEN[0] else ", paper's clip"
        first, second = ("τ 0.5", "τ 0.1") if "τ" in row.title else row.title.split(" − ")
        higher = {CONCLUSIONS[0]: f"**{first} higher**", CONCLUSIONS[1]: f"**{second} higher**"}
        word = higher.get(found.conclusion, found.conclusion.partition(" within")[0])
        chances = chance(found.p), chance(found.p_equivalent), str(found.family)
        yield [title, SETTINGS[row.place] + clip, rates, seeds, numbers[0], *chances, numbers[1], word]


def rate_means(label: str) -> dict[float, float]:
    return {rate: float(np.mean(seeds)) for rate, seeds in tried("16 updates", label).items()}


def of_real() -> Iterator[list[str]]:
    """The page's columns: what REAL is compared with, without the last evaluation, so that they fit a screen."""
    for title, setting, *cells, _, conclusion in table(shown()):
        short = setting.replace("16 updates, rate", "rate")
        yield [title.removeprefix("REAL − "), short, *cells, conclusion.replace(" higher", "")]


# The end of training, noticed afterwards

ENDS = {  # a column: the places whose runs it counts
    "B, C, E, F, G": ("4 updates", SIXTEEN[0], "hard task", *PRETRAINED),
    "A": ("1 update",),
    "D": (SIXTEEN[1],),
}
DAPO_TOO = ("4 updates", "hard task", PRETRAINED[1])
FALL = 0.1


def fallen(place: str, label: str) -> tuple[int, int]:
    """(runs whose last evaluation is more than FALL below their own best, all runs)"""
    curves = arm(place, label).curves()
    return sum(max(curve.values()) - curve[max(curve)] > FALL for curve in curves), len(curves)


def ends() -> Iterator[list[str]]:
    for label in ("REAL", "GRPO", "GSPO", "DAPO"):
        cells = []
        for places in ENDS.values():
            counts = [fallen(place, label) for place in places if label in PLACES[place]]
            cells.append("{} of {}".format(*map(sum, zip(*counts, strict=True))) if counts else "–")
        yield [label, *cells]


def collapses() -> Iterator[list[str]]:
    """Where z is above 0.1: by_rate() in short."""
    at, near, far, elsewhere = "1", "above 1, up to 2", "3, with 16 updates", "above 2, other settings"
    counts = {row: [0, 0, 0] for row in (at, near, far, elsewhere)}
    setting = ""
    for title, rate, *found, _ in by_rate():
        setting = title or setting
        beyond = far if setting == SIXTEEN[0] else elsewhere
        row = at if float(rate) <= 1 else near if float(rate) <= 2 else beyond
        counts[row] = [old + int(new) for old, new in zip(counts[row], found, strict=True)]
    yield from ([row, *map(str, found)] for row, found in counts.items())


def tables() -> dict[Path, dict[str, Callable[[], Iterator[list[str]]]]]:
    return {
        RESULTS: {"check comparisons": of_real, "check ends": ends, "check collapses": collapses},
        COMPARISONS: {"check all": lambda: table(comparisons()), "check by_rate": by_rate},
        README: {},
    }


@functools.cache
def facts() -> dict[str, tuple[str, tuple[float | None, ...], str]]:
    """Every difference of two arms of one place as a page prints it, with the place, the arms' rates over their best,
    and the conclusion."""
    found = {}
    for place, pair in ((row.place, row.arms) for row in comparisons()):
        verdict = concluded(place, pair)
        found[size(verdict.gap)] = place, tuple(multiple(place, label) for label in pair), verdict.conclusion
    return found


# Sentences


def sentences() -> dict[Path, list[str]]:
    return {RESULTS: [*results(), *GIVEN], README: [*readme()], COMPARISONS: [GIVEN[0]]}


def readme() -> Iterator[str]:
    own = [concluded(place, ("REAL", "GRPO")) for place in OWN_RATES]
    rates = {multiple(place, label) for place in OWN_RATES for label in ("REAL", "GRPO")}
    assert rates == {1.0} and {verdict.conclusion for verdict in own} == {CONCLUSIONS[3]}
    means = [verdict.gap.mean for verdict in own]
    told = "in five settings, neither different nor equivalent after correction"
    yield f"between {min(means):+.3f} and {max(means):+.3f} {told}"
    for place, other, conclusion in (
        (SIXTEEN[1], "GRPO", 0),
        (SIXTEEN[1], "GSPO", 1),
        ("hard task", "GRPO", 1),
        ("queue of 4", "GRPO corrected", 1),
    ):
        assert concluded(place, ("REAL", other)).conclusion == CONCLUSIONS[conclusion]
    yield "At three times the best rate REAL's pass@1 fell less than GRPO's and more than GSPO's"
    yield "GRPO learned faster and ended alike"
    yield "with stale responses plain REAL lost to GRPO with importance correction"


def results() -> Iterator[str]:
    bold = [row for row in shown() if is_decided(row)]
    own = [row for row in bold if [times(multiple(row.place, label)) for label in row.arms] == ["1", "1"]]
    assert {row.title for row in own} == {"REAL − GSPO", "REAL − REAL at τ 0.1", "REAL − GRPO, corrected"}
    yield f"In {words(len(own))} of {words(len(bold))} did both sides run at their best rate"
    every = Counter(concluded(row.place, row.arms).conclusion for row in comparisons())
    decided = sum(every[word] for word in CONCLUSIONS[:2])
    counts = f"{decided} are decided, {every[CONCLUSIONS[2]]} equivalent and {every[CONCLUSIONS[3]]} inconclusive"
    yield f"Of all {every.total()} comparisons {counts}"
    small = [np.mean([run.z for run in arm(p, "REAL").runs.values()]) for p in ("1 update", "4 updates", SIXTEEN[0])]
    yield f"nearly constant** in the small model (z up to {max(small):.2f}"
    end = Gap.of(*(arm("hard task", label).ends() for label in ("REAL", "GRPO")))
    yield f"these two ended alike ({end.mean:+.3f} {PM} {end.se:.3f})"
    before, after = (chance(between(place, "REAL", "GRPO").p) for place in ("4 updates", SIXTEEN[0]))
    yield f"GRPO would lead with four updates (p = {before}) and REAL with sixteen (p = {after})"
    real, grpo = (
        [fallen(place, label) for place in (*ENDS["B, C, E, F, G"], *ENDS["A"])] for label in ("REAL", "GRPO")
    )
    with_a = [tuple(map(sum, zip(*counts, strict=True))) for counts in (real, grpo)]
    without = [tuple(map(sum, zip(*counts[:-1], strict=True))) for counts in (real, grpo)]
    yield "GRPO in {} of the {} runs beside DAPO's".format(
        *map(sum, zip(*(fallen(place, "GRPO") for place in DAPO_TOO), strict=True))
    )
    yield f"Fisher's p = {fisher(*without):.3f} in the first column, {fisher(*with_a):.2f} with A"
    yield f"at most {max(map(table_1, TABLE_1)) / TAU:.2f}"
    kl = [median_kl(label) for label in ("REAL", "GRPO")]
    yield f"median `ppo_kl` {kl[0]:.3f}, GRPO's {kl[1]:.3f}"
    by_length = {tokens: lengths(tokens) for tokens in (9, 64, 256)}
    spread = [np.mean([z for z, _ in runs]) for runs in by_length.values()]
    yield "z was {:.3f}, {:.3f} and {:.3f} at 9, 64 and 256 tokens".format(*spread)
    assert all(together < 2 for runs in by_length.values() for _, together in runs)  # prediction L1 failed
    assert all(long < short / 2 for (long, _), (short, _) in zip(by_length[256], by_length[9], strict=True))  # L2 held
    near, some = ([cell for cell in cells() if low < cell.z <= high] for low, high in ((-1, 0.03), (0.03, 0.1)))
    yield f"{pm(gains(near))} in the {len(near)} settings with z up to 0.03"
    yield f"{pm(gains(some))} in the {len(some)} from there to 0.1"
    yield from rates_of_16()
    clip = [100 * clipped(place, "GSPO") for place in ("4 updates", "hard task", SIXTEEN[1], *PRETRAINED)]
    assert 44 < min(clip) and max(clip) < 55  # "drops half of the tokens"
    queue = "queue of 4"
    adds = [size(between(queue, label, "REAL")) for label in (SAMPLER, "tau 0.1")]
    yield f"scores against the rollout policy add {adds[0]}, and τ = 0.1 adds {adds[1]}, at twice the learning"
    assert multiple(queue, "tau 0.1") == multiple(queue, "REAL") == 1
    assert arm(queue, "tau 0.1").rate == 2 * arm(queue, "REAL").rate
    best = "rollout policy, tau 0.1"
    alike = [between(queue, best, other) for other in ("VESPO", "GRPO corrected")]
    assert conclusions(alike) == [CONCLUSIONS[2]] * 2
    assert [round(age("queue of 8", step)) for step in (11, 16)] == [5, 8]
    yield f"from {pm(arm('a machine', 'REAL').ends())} to {pm(arm('another machine', 'REAL').ends())}"
    assert np.sign(end_gap("a machine")) != np.sign(end_gap("another machine"))  # "reverses GRPO minus REAL"
    assert made_again() == 80


def rates_of_16() -> Iterator[str]:
    """16 updates: what the rates that were tried say, and the predictions of rates-16, A1 to A4."""
    means = {label: rate_means(label) for label in OWN}
    assert all(max(found, key=lambda rate: found[rate]) == 1e-4 for found in means.values())
    assert all(len(found) == 5 for found in means.values())
    within = {label: sum(mean > found[1e-4] - 0.1 for mean in found.values()) for label, found in means.items()}
    tests = [arm(SIXTEEN[0], label).means().mean() for label in OWN]
    yield f"scored {min(tests):.2f} to {max(tests):.2f} there on 16 new seeds"
    clips = [np.mean(by_learning_rate(TRIED["16 updates"], name)[1e-4][:1]) for name in (OWN["GSPO"], "gspo")]
    yield f"with 16 updates GSPO scores {clips[1]:.2f} with it and {clips[0]:.2f} with 0.2/0.3 (seed 1)"
    fixed = concluded(SIXTEEN[0], ("REAL", FIXED))
    others = {label: concluded(SIXTEEN[0], ("REAL", label)) for label in OWN if label != "REAL"}
    pair = concluded(SIXTEEN[0], ("ratio none", NEITHER))
    verdicts = [one.conclusion for one in (fixed, others["GRPO"], pair)]
    predicted = {
        "REAL does well at more rates than fixed weights": within["REAL"] > within[FIXED],
        "REAL scores higher than fixed weights": verdicts[0] == CONCLUSIONS[0] and fixed.gap.mean < 0.12,
        "GRPO is equivalent": verdicts[1] == CONCLUSIONS[2] and all(-one.gap.mean < 0.05 for one in others.values()),
        "a surrogate without ratio needs its clip": verdicts[2] == CONCLUSIONS[0],
    }
    (held,) = (name for name, holds in predicted.items() if holds)
    failed = [f"that {name}" for name in predicted if name != held]
    yield f"one held: {held}. {words(len(failed)).title()} failed, as inconclusive: {'; '.join(failed)}"
    assert verdicts == [CONCLUSIONS[3]] * 3


def words(number: int) -> str:
    return "zero one two three four five six seven eight nine ten eleven twelve".split()[number]


def fisher(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Fisher's exact test of two (counted, all), two-sided."""
    (a, n), (b, m) = one, other
    ways = [math.comb(n, k) * math.comb(m, a + b - k) for k in range(a + b + 1)]
    return sum(way for way in ways if way <= ways[a]) / sum(ways)


def table_1(side: str) -> float:
    """The largest spread of log-ratios that has these bins, with every ratio within 1/4 to 4."""
    most = 0.0
    for share, ratio, low, high in TABLE_1[side]:
        low, high = max(low, 1 / 4), min(high, 4)
        if ratio is None:  # clipped: all mass at the far end
            most += share / 100 * max(abs(math.log(low)), abs(math.log(high))) ** 2
            continue
        above = (ratio - low) / (high - low)  # all mass at the ends of a bin
        most += share / 100 * ((1 - above) * math.log(low) ** 2 + above * math.log(high) ** 2)
    return math.sqrt(most)


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


def made_again() -> int:
    """How many runs of `table` have equals, in each number but the times; all must."""
    first, again = campaign(AGAIN.replace("-skill", "")), campaign(AGAIN)
    for name in {*first, *again}:
        one, other = ({**run.train, "timing/step_total": {}} for run in (first[name], again[name]))
        assert (one, first[name].evals) == (other, again[name].evals), name
    return len(first)


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
