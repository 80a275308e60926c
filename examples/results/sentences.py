"""What the pages say with measured numbers: arms, tables and sentences. check.py reads the records and the pages."""

import functools
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import inf
from pathlib import Path
from typing import NamedTuple

import endings.endings as endings
import numpy as np
from check import (
    BATCH,
    CONCLUSIONS,
    HERE,
    ROOT,
    Arm,
    Gap,
    Run,
    Verdict,
    campaign,
    chance,
    holm,
    named,
    paired,
    pm,
    times,
    verdicts,
)

sys.path += [str(HERE / folder) for folder in ("equal-rates", "scratchpad", "shared-errors")]
import by_length
import equal_rates
import shared_errors

README, RESULTS = ROOT / "README.md", ROOT / "docs" / "evidence" / "results.md"
COMPARISONS, SMOLLM2 = HERE / "archive" / "comparisons.md", ROOT / "docs" / "use" / "smollm2.md"
METHODS, LOGS = ROOT / "docs" / "use" / "algorithms.md", ROOT / "benchmarks" / "z_from_logs" / "PREDICTIONS.md"

# The arms of each place, of which A to H are the settings of the pages

FIXED, BALANCED, SAMPLER, NEITHER = "fixed weights", "balanced", "rollout policy", "ratio none, no clip"
TABLE = {FIXED: "real_constant", BALANCED: "real_balanced"}
TABLE |= {name: name.lower() for name in ("REAL", "GRPO", "DAPO", "GSPO", "CISPO", "REINFORCE")}
RATIO = {  # where the ratio stays in the gradient of GRPO's surrogate
    f"ratio {side}": f"real-objective-.*_ratio_{side}" for side in ("both", "right", "wrong", "none")
}
OWN = {  # 16 updates, each method at its own rate: rates on seeds 1 to 3, then seeds 91 to 106
    **{label: TABLE[label] for label in ("REAL", FIXED, "GRPO")},
    BALANCED: "real-objective-.*_balanced",
    "GSPO": "gspo-eps_clip_low_high-0.2-0.3",
    "ratio none": RATIO["ratio none"],
    NEITHER: f"{RATIO['ratio none']}-set-low=1e9-high=1e9",
}
ON, LOW = "-set-score=log_ratio_rollout", "-tau-0.1"
STALE = {
    "REAL": "real(?:-objective-real-tau-0.5)?",
    SAMPLER: f"real(?:-objective-real)?{ON}(?:-tau-0.5)?",
    "tau 0.1": f"real(?:-objective-real)?{LOW}",
    "rollout policy, tau 0.1": f"real(?:-objective-real)?{ON}{LOW}",
    "GRPO corrected": "grpo-is_correction_level-token-is_correction_mode-clip-is_correction_threshold-2",
    "CISPO": "cispo",
    **{label: f"real-.*_{label.lower()}.*" for label in ("OAPL", "VESPO", "ReNCE")},
}


class Place(NamedTuple):
    title: str  # of a setting
    folder: str
    names: dict[str, str]  # of the arms: how the name of a run begins
    rest: str = ""  # how it goes on, before the seed
    tried: str = ""  # what tried the learning rates, FOLDER:NAMES with {} for an arm's, which now ends with its rate


PLACES = {
    "A": Place(
        "A: 1 update", "next/group-weights-7a0258d5", TABLE, "-lr-0.0006", "next/group-weights-rates-7a0258d5:{}"
    ),
    "B": Place("B: 4 updates", "next/table-7a0258d5", TABLE, "-lr-.*", "next/table-rates-7a0258d5:{}"),
    "C": Place("C: 16 updates", "rates-16", OWN, "-lr-.*(?=-s(?:9|10)[0-9]$)", "rates-16:{}(?=-s[1-3]$)"),
    "D": Place("D: 16 updates, rate × 3", "next/ratio-7a0258d5", TABLE | RATIO, tried="rates-16:{}(?=-s[1-3]$)"),
    # its rates were tried with older code and one seed
    "E": Place("E: hard start", "next/table-hard-7a0258d5", TABLE, "-lr-.*", "rates:tune-hard-rates/{}"),
    "F": Place("F: SmolLM2°", "smollm2-mixed", TABLE, "-lr-3e-05", "rates:smollm2-mixed-rates/{}"),
    "G": Place("G: SmolLM2, repeated", "next/pretrained-78089738", TABLE, tried="rates:smollm2-mixed-rates/{}"),
    "H": Place("H: stale", "next/old-4-7a0258d5", STALE, "-lr-.*", "next/old-rates-7a0258d5:{}"),
    # without REAL, or without a comparison of methods
    "stale": Place("H: stale", "next/ratio-old-7a0258d5", RATIO),
    "length": Place("", "length", {f"{tokens} tokens": f"real-tokens-{tokens}" for tokens in (9, 64, 256)}),
    "its page": Place("", "smollm2", TABLE, "-lr-3e-05", "rates:smollm2-rates/{}"),
    "a machine": Place("", "tune", TABLE, "-lr-0.0003"),
    "another machine": Place("", "noise", TABLE, "-data-comparison_noisy_right-to-wrong-0.jsonl"),
}
SETTINGS = "ABCDEFGH"
PLAIN = ("REAL", "GRPO", "DAPO")  # no correction for errors


@functools.cache
def arms_of(place: str) -> dict[str, Arm]:
    """Those that have runs. All count: Holm's correction is over those beside REAL."""
    _, folder, names, rest, _ = PLACES[place]
    planned = max(max(run.evals) for run in campaign(folder).values())
    found = {label: named(folder, name + rest) for label, name in names.items()}
    return {label: Arm(runs, planned) for label, runs in found.items() if runs}


def arm(place: str, label: str) -> Arm:
    return arms_of(place)[label]


def beside_real(place: str) -> list[str]:
    return [label for label in arms_of(place) if label != "REAL"]


def between(place: str, one: str, other: str) -> Gap:
    """By the mean over training, on the evaluations that both arms have."""
    arms = arm(place, one), arm(place, other)
    both = arms[0].steps & arms[1].steps
    return Gap.of(*(each.means(steps=both) for each in arms))


def at_the_end(place: str, one: str, other: str) -> Gap:
    return Gap.of(*(arm(place, label).ends() for label in (one, other)))


# Each arm's learning rate as a multiple of the best that was tried for its method in that place

RATE = r"-lr-([\d.]+(?:e-?\d+)?)"  # in the name of a run


@functools.cache
def tried(place: str, label: str) -> dict[float, list[float]]:
    """{learning rate: the mean over training of each run that tried it}"""
    folder, _, pattern = PLACES[place].tried.partition(":")
    runs = named(folder, pattern.replace("{}", PLACES[place].names[label] + RATE)) if folder else []
    rates = sorted({run.rate for run in runs})
    planned = max((max(run.evals) for run in runs), default=0)
    return {rate: [*Arm([run for run in runs if run.rate == rate], planned).means()] for rate in rates}


def best(place: str, label: str) -> float:
    means = tried(place, label)
    return max(means, key=lambda rate: np.mean(means[rate]))


def multiple(place: str, label: str) -> float | None:
    """None if fewer than two rates were tried."""
    return arm(place, label).rate / best(place, label) if len(tried(place, label)) > 1 else None


# The cells: REAL and fixed weights with equal flags and seeds

FOLDERS = sorted(str(path.parent.relative_to(HERE)) for path in HERE.rglob("metrics.parquet"))
# Their log has z over all updates; before, the mean of each one's
POOLED_Z = ("endings", "equal-rates", "first-run", "scratchpad", "shared-errors", "smollm2-page")
MERGED = {"weights-small": "16", "weights-seeds": "16", "smollm2-controls": "smollm2"}


class Cell(NamedTuple):
    name: str
    real: Arm
    fixed: Arm

    @property
    def gain(self) -> float:
        return self.real.means().mean() - self.fixed.means().mean()


@functools.cache
def cells() -> list[Cell]:
    """Of all campaigns but `map`, whose optimizer is gone, `scratchpad`, and the runs that repeat others; a cell in
    which neither arm learned compares nothing."""
    of_flags: dict[str, dict[str, dict[int, Run]]] = defaultdict(lambda: {"real": {}, "real_constant": {}})
    for folder in FOLDERS:
        for name, run in campaign(folder).items() if folder not in ("map", "next/table-skill-7a0258d5") else ():
            part, _, word = name.rpartition("/")
            part = MERGED.get(part or folder, part or folder)
            if match := re.fullmatch(r"(real|real_constant)((?:-.*)?)-s\d+", word):
                rest = re.sub(RATE, lambda rate: f"-lr-{float(rate[1])}", match[2])
                of_flags[part + rest][match[1]][run.seed] = run
    found = []
    for name, sides in of_flags.items():
        planned = max(max(run.evals) for side in sides.values() for run in side.values())
        seeds = sorted(set.intersection(*map(set, sides.values())))
        real, fixed = (Arm([side[seed] for seed in seeds], planned) for side in sides.values())
        if seeds and max(arm.means().mean() for arm in (real, fixed)) >= 0.1:
            found.append(Cell(name, real, fixed))
    return found


SPREAD = {  # where z is above 0.1: the cells, and where REAL's rates were tried
    "16 updates": (r"16|next/ratio-.*|rates-16.*", "C"),
    "stale, queue of 4": (r"weights-age|demo-rates-.*", "H"),
    "4 updates": (r"next/table-rates-.*", "B"),
    "hard task": (r"tune-hard-rates-.*", "E"),
    "pretrained": (r"smollm2-mixed-.*|next/pretrained-.*", "F"),
    "scores as sums": (r"weights-sums-.*", "B"),
}


def by_rate() -> Iterator[list[str]]:
    """Where scores spread by more than a tenth of tau: who collapsed, by setting and by REAL's rate over its best."""
    spread = [cell for cell in cells() if cell.real.z > 0.1]
    left = {cell.name for cell in spread}
    for title, (names, where) in SPREAD.items():
        here = [cell for cell in spread if re.fullmatch(names, cell.name)]
        assert here
        left -= {cell.name for cell in here}
        for rate in sorted({cell.real.rate for cell in here}):
            found = [cell for cell in here if cell.real.rate == rate]
            fixed = np.concatenate([cell.fixed.collapsed() for cell in found])
            real = np.concatenate([cell.real.collapsed() for cell in found])
            counts = len(fixed), fixed.sum(), real.sum(), (fixed & real).sum()
            yield [title, times(rate / best(where, "REAL")), *map(str, counts)]
            title = ""
    assert not left, left


# Table 1 of the paper: percent of the tokens, mean ratio (none where the gradient is clipped), range of ratios
TABLE_1 = {
    "correct": ((0.22, 0.6943, 0, 0.8), (4.83, 0.9788, 0.8, 1), (94.63, 1.001, 1, 1.2), (0.32, None, 1.2, inf)),
    "incorrect": ((0.24, None, 0, 0.8), (5.47, 0.9774, 0.8, 1), (93.95, 1.0012, 1, 1.2), (0.34, 1.3553, 1.2, inf)),
}
TAU = 0.5  # the paper's
GIVEN = {  # the pages of which each decimal is computed, but for these, which are chosen
    README: (),
    RESULTS: ("within 0.03", "τ = 0.02"),
    COMPARISONS: ("within 0.03",),
    METHODS: ("|below 0.03|", "|0.03 to 0.1|", "KL 0.001"),
    SMOLLM2: ("|+0.499|", "|-0.334|"),  # printed by a command, of no record
}


# The tables of comparisons

Row = tuple[str, str, tuple[str, str]]  # a title, a setting, and the arms of which the first is less the second
NAMES = {  # of arms, where a page has other words
    BALANCED: "balanced REAL",
    SAMPLER: "REAL by the rollout policy",
    "tau 0.1": "REAL at τ 0.1",
    f"{SAMPLER}, tau 0.1": "REAL by the rollout policy at τ 0.1",
    "GRPO corrected": "GRPO, corrected",
    "ratio both": "surrogate",
    "ratio right": "surrogate, ratio where correct",
    "ratio wrong": "surrogate, ratio where incorrect",
    "ratio none": "surrogate without ratio",
    NEITHER: "surrogate without ratio and clip",
}


def compared() -> Iterator[Row]:
    """REAL with every method beside it, method by method, and what else was planned."""
    first = ["GRPO", "DAPO", "GSPO", FIXED]
    for other in dict.fromkeys([*first, *(label for place in SETTINGS for label in beside_real(place))]):
        for place in SETTINGS:
            if other in arms_of(place):
                yield f"REAL − {NAMES.get(other, other)}", place, ("REAL", other)
    for place in ("D", "stale"):
        yield "surrogate without ratio − with ratio", place, ("ratio none", "ratio both")
    yield "without ratio, with clip − without clip", "C", ("ratio none", NEITHER)


@functools.cache
def concluded(place: str, one: str, other: str) -> Verdict:
    pair = one, other
    if pair == ("ratio none", NEITHER):
        family = [pair, ("REAL", BALANCED)]  # as PREDICTIONS.md of rates-16 says
    elif one.startswith("ratio"):
        family = [(f"ratio {side}", "ratio both") for side in ("right", "wrong", "none")]
    else:
        family = [("REAL", label) for label in beside_real(place)]
    return verdicts([between(place, *arms) for arms in family])[family.index(pair)]


def comparisons(rows: Iterable[Row]) -> Iterator[list[str]]:
    before = ""
    for title, place, arms in rows:
        found = concluded(place, *arms)
        numbers = [str(gap).replace(" ", "") for gap in (found.gap, at_the_end(place, *arms))]
        rates = " / ".join(times(multiple(place, label)) for label in arms)
        seeds = str(min(len(arm(place, label).runs) for label in arms))
        clip = "" if arms[1] != "GSPO" else ", clip 0.2/0.3" if place == "C" else ", paper's clip"
        first, second = ("τ 0.5", "τ 0.1") if "τ" in title else title.split(" − ")
        higher = {"higher": f"**{first} higher**", "lower": f"**{second} higher**"}
        word = higher.get(found.conclusion, found.conclusion)
        chances = chance(found.p), chance(found.p_equivalent), str(found.family)
        name, before = title if title != before else "", title
        yield [name, PLACES[place].title + clip, word, rates, seeds, numbers[0], *chances, numbers[1]]


def of_grpo() -> Iterator[list[str]]:
    """REAL less GRPO, of the page of results."""
    rows = [row for row in compared() if row[2] in (("REAL", "GRPO"), ("REAL", "GRPO corrected"))]
    for _, setting, conclusion, rates, _, *numbers in comparisons(rows):
        corrected = ", GRPO corrected" if setting.startswith("H") else ""
        yield [setting + corrected, rates, *numbers, conclusion.replace(", corrected", "").replace(" higher", "")]


def verdicts_of_places() -> Iterator[list[str]]:
    """REAL and every method beside it, setting by setting."""
    for place in SETTINGS:
        clip = "wider clip" if place == "C" else "paper's clip"
        found: dict[str, list[str]] = {word: [] for word in CONCLUSIONS}
        for other in beside_real(place):
            name = f"GSPO ({clip})" if other == "GSPO" else NAMES.get(other, other).replace("REAL by", "by")
            found[concluded(place, "REAL", other).conclusion].append(name)
        cells = ["; ".join(found[word]) or "–" for word in CONCLUSIONS]
        yield [PLACES[place].title, times(multiple(place, "REAL")), str(seeds(place)), *cells]


# z of the records, as logged and as it would be logged today


def spreads(run: Run) -> tuple[float, ...]:
    """z, its least if pooled over a batch's updates, that of independent tokens by the KL, and the length."""
    kl = run.of("kl_old" if "kl_old" in run.logged else "ppo_kl")
    length = run.of("rollout/response_length_mean").mean()
    independent = math.sqrt(max(2 * kl.mean(), 0) / length) / TAU
    return run.z, run.z * math.sqrt(run.updates / (run.updates - 1)), independent, length


def older_z() -> Iterator[list[str]]:
    rows = {PLACES[place].title: arm(place, "REAL") for place in "BCDEFG"}
    for title, one in {**rows, **arms_of("length")}.items():
        z = np.mean([spreads(run) for run in one.runs], axis=0)[:3]
        yield [title, f"{one.runs[0].updates:.0f}", str(len(one.runs)), *(f"{mean:.3f}" for mean in z)]


# The end of training


def endings_of_arms() -> Iterator[list[str]]:
    """A row for each arm of the tests of endings: B has four updates, C sixteen."""
    found = sorted(endings.cells().items())
    rows = [("B" if place == "4 updates" else "C", *cell, arm) for (place, *cell), arm in found]
    rows += [("B, equal rates", *cell, arm) for cell, arm in equal_rates.cells().items()]
    for *row, arm in rows:
        fell = [f"{count} of {len(arm.runs)}" for count in endings.fell(arm)]
        yield [*row, *fell, pm(endings.drops(arm)), pm(arm.means())]


def collapses() -> Iterator[list[str]]:
    """Where z is above 0.1: by_rate() in short."""
    at, near, far, elsewhere = "1", "above 1, up to 2", "3, with 16 updates", "above 2, other settings"
    counts = {row: [0, 0, 0] for row in (at, near, far, elsewhere)}
    setting = ""
    for title, rate, *found, _ in by_rate():
        setting = title or setting
        beyond = far if setting == "16 updates" else elsewhere
        row = at if float(rate) <= 1 else near if float(rate) <= 2 else beyond
        counts[row] = [old + int(new) for old, new in zip(counts[row], found, strict=True)]
    yield from ([row, *map(str, found)] for row, found in counts.items())


TABLES: dict[str, Callable[[], Iterator[list[str]]]] = {
    "check comparisons": of_grpo,
    "check all": lambda: comparisons(compared()),
    "check endings": endings_of_arms,
    "check verdicts": verdicts_of_places,
    "check collapses": collapses,
    "check by_rate": by_rate,
    "check older_z": older_z,
    "check second look": endings.table,
    "check equal rates": equal_rates.table,
    "check shared errors": shared_errors.table,
    "check lengths": by_length.table,
    "check tests of lengths": by_length.table_of_tests,
    "check alone": lambda: by_length.table(by_length.ALONE),
    "check tests of alone": lambda: by_length.table_of_tests(by_length.ALONE),
    "check again": lambda: by_length.table(by_length.ALONE, by_length.AGAIN),
    "check test of again": lambda: by_length.table_of_tests(by_length.ALONE, by_length.AGAIN),
}


# Sentences


def sentences() -> dict[Path, list[str]]:
    told = {RESULTS: results, README: readme, COMPARISONS: settings, METHODS: methods, LOGS: logs, SMOLLM2: smollm2}
    for module in (endings, equal_rates, by_length, shared_errors):
        told[Path(module.__file__).with_name("PREDICTIONS.md")] = module.sentences
    return {page: [*made(), *GIVEN.get(page, ())] for page, made in told.items()}


def readme() -> Iterator[str]:
    yield from first_run()
    lower, higher = (gap.mean for gap in endings.over_training())
    yield f"mean pass@1 was {-lower:.3f} lower in one experiment and {higher:.3f} higher in another, 32 seeds each"
    yield at_equal_rates()
    drop, p = equal_rates.main_effects()["rate"]
    yield f"At 3e-4 runs ended {drop.mean:.3f} further below their best than at 2e-4 (mean of both, Holm's p {p:.3f})"
    lower = (("D", "GSPO"), ("D", "ratio none"), ("E", "GRPO"), ("H", "GRPO corrected"))
    assert {concluded(place, "REAL", other).conclusion for place, other in lower} == {"lower"}
    assert concluded("D", "REAL", "GRPO").conclusion == "higher"
    yield response_lengths()
    yield "At three times the best rate REAL reached more than GRPO, less than GSPO"
    assert multiple("E", "REAL") == 2
    rate = times(multiple("E", "GRPO"))
    yield f"Starting at 2 % GRPO ({rate} times its best rate) learned faster than REAL (twice)"
    yield "With stale responses plain REAL lost to GRPO with importance correction"


def at_equal_rates() -> str:
    low, high = (-equal_rates.over_training(rate).mean for rate in equal_rates.RATES)
    return f"at equal rates {low:.3f} (2e-4) and {high:.3f} (3e-4) lower"


def first_run() -> Iterator[str]:
    """README's first output, as the command prints it."""
    (run,) = campaign("first-run").values()
    last, passed = max(run.evals), run.logged["eval_reverse_pass8"]
    for step in (0, last):
        yield f"evaluation at step {step}: reverse pass@1 {run.evals[step]:.3f}, reverse pass@8 {passed[step]:.3f}"
    line = "step {}/{} pass rate {:.3f} loss {:.4f} entropy {:.3f} grad norm {:.2f} {:.1f} s"
    keys = "rollout/pass_rate", "policy_loss", "rollout/entropy", "actor_grad_norm", "timing/step_total"
    yield from (line.format(step, last, *(run.logged[key][step] for key in keys)) for step in (1, last))


def response_lengths() -> str:
    lengths = [arm(place, "REAL").mean("rollout/response_length_mean") for place in SETTINGS]
    return f"{min(lengths):.0f} or {max(lengths):.0f} tokens"


def settings() -> Iterator[str]:
    """The rows of the table of settings that the records have, from the column A."""
    arms = [arm(place, "REAL") for place in SETTINGS]
    runs = [each.runs[0] for each in arms]
    warm = re.search(r"after the warm-up,([\d.]+)", (HERE / "smollm2-mixed/final_models.csv").read_text())
    start = [np.mean([run.evals.get(0, float(warm[1])) for run in each.runs]) for each in arms]
    assert runs[-1].flags["--train.async_queue_size"] == 4
    cells: dict[str, str] = {}
    for place in SETTINGS:
        counts = {len(found) for label in arms_of(place) if (found := tried(place, label))}
        number = f"{' or '.join(map(str, sorted(counts)))} × {min(map(len, tried(place, 'REAL').values()))}"
        cells[place] = next((f"as {one}" for one in cells if PLACES[one].tried == PLACES[place].tried), number)
    for row in (
        [f"{100 * share:.0f} %" for share in start],
        ["{} × {}".format(*(run.flags[f"--{flag}"] for flag in BATCH[:2])) for run in runs],
        [f"{run.updates:.0f}" for run in runs],
        [str(each.planned) for each in arms],
        list(cells.values()),
    ):
        yield f"|{'|'.join(row)}"


def results() -> Iterator[str]:
    yield response_lengths()
    own = [place for place in "ABCDEFG" if multiple(place, "REAL") == multiple(place, "GRPO") == 1]
    assert {concluded(place, "REAL", "GRPO").conclusion for place in own} == {"inconclusive"}
    yield f"At their best learning rates {words(len(own))} settings showed neither a difference nor equivalence"
    gap, p = smollm2_at_the_end()
    yield f"at 3e-5 ended {gap.unsigned} lower with REAL (p {gap.p:.3f}; Holm's {p:.2f})"
    yield "REAL at {}, GRPO at {} times".format(*(times(multiple("E", label)) for label in ("REAL", "GRPO")))
    every = Counter(concluded(place, "REAL", other).conclusion for place in SETTINGS for other in beside_real(place))
    counts = every.total(), every["higher"] + every["lower"], every["equivalent"], every["inconclusive"]
    yield "Of REAL's {} comparisons {} are decided, {} equivalent and {} inconclusive".format(*counts)
    others = beside_real("E")
    lost = [label for label in others if concluded("E", "REAL", label).conclusion == "lower"]
    yield f"more slowly than {words(len(lost))} of {words(len(others))} methods"
    lost, runs = lost_to_a_kind()
    yield f"{lost} of {runs} runs (REAL, GRPO, DAPO; 2e-4) [ended below 0.2]"
    small = max(arm(place, "REAL").z for place in "ABC")
    yield f"in the small model ([z](#when-can-reals-weights-matter) up to {small:.2f}"
    yield from fell_at_the_end()
    over = endings.over_training()
    assert max(gap.p_equivalent for gap in over) < 0.01
    yield "{} in B and {} in C, all equivalent within 0.03".format(*over)
    yield f"at most {max(map(table_1, TABLE_1)) / TAU:.3f}"
    runs = (arm("G", label).runs for label in ("REAL", "GRPO"))
    kl = [np.mean([np.median(run.of("ppo_kl")) for run in of_arm]) for of_arm in runs]
    yield "median `ppo_kl` {:.3f}, GRPO's {:.3f}".format(*kl)
    # at the second update: the log has means of two, of which the first is 0
    spread = [2 * one.z for one in arms_of("length").values()]
    yield "z was {:.3f}, {:.3f} and {:.3f} at 9, 64 and 256 tokens".format(*spread)
    assert spread[0] / spread[2] > math.sqrt(256 / 9)  # "at least that fast"
    yield smaller_tau()
    ranges = ((-1, 0.03), (0.03, 0.1))
    little, some = (np.array([cell.gain for cell in cells() if low < cell.real.z <= high]) for low, high in ranges)
    yield f"{pm(little)} in the {len(little)} settings with z up to 0.03"
    yield f"{pm(some)} in the {len(some)} from there to 0.1"
    yield from rates_of_16()
    clipped = [arm(place, "GSPO").mean("ppo_clip_ratio") for place in "BDEFG"]
    assert 0.44 < min(clipped) and max(clipped) < 0.55  # "drops half of its tokens"
    adds = [between("H", label, "REAL").unsigned for label in (SAMPLER, "tau 0.1")]
    yield f"scores against the rollout policy add {adds[0]}, and τ = 0.1 adds {adds[1]}"
    rate = arm("H", "REAL").rate
    low, usual = (np.mean(tried("H", label)[rate]) for label in ("tau 0.1", "REAL"))
    yield f"twice the rate ({low - usual:.3f} at equal rates, two seeds)"
    assert arm("H", "tau 0.1").rate == 2 * rate
    least = "rollout policy, tau 0.1"
    alike = [between("H", least, other) for other in ("VESPO", "GRPO corrected")]
    assert [one.conclusion for one in verdicts(alike)] == ["equivalent"] * 2
    yield f"from {pm(arm('a machine', 'REAL').ends())} to {pm(arm('another machine', 'REAL').ends())}"
    signs = {arm(p, "GRPO").ends().mean() > arm(p, "REAL").ends().mean() for p in ("a machine", "another machine")}
    assert signs == {True, False}  # "GRPO minus REAL changed its sign"


def smaller_tau() -> str:
    """Of the tries that have τ 0.5 beside it."""
    tries = [by_length.cells(), by_length.cells(by_length.ALONE)]
    arms = [of[name] for found in tries for of in found.values() for name in of if by_length.method(name) == "τ′"]
    tests = [test for found in tries for test in by_length.tests(found) if test[0] == "τ′ minus τ 0.5"]
    assert max(same for *_, same in tests) < 0.01 and min(gap.mean for _, _, gap, *_ in tests) > 0
    low, *_, high = sorted(map(by_length.angle, arms))
    link = f"[up to {max(gap.mean for _, _, gap, *_ in tests):.3f} higher]"
    return f"τ below 0.5 turned REAL's gradient by {low:.1f}° to {high:.1f}° and scored {link}"


def fell_at_the_end() -> Iterator[str]:
    """By the definition of the page and by the last evaluation alone, in both experiments and in C."""
    both = endings.by_method()
    fell = (endings.fell(both[method]) for method in ("GRPO", "REAL", endings.NO_KL))
    (grpo, grpo_last), (real, real_last), (without, last_without) = fell
    runs = len(both["GRPO"].runs)
    yield f"GRPO fell in {grpo} of {runs} runs and REAL in {real or 'none'} (Holm's p {endings.chances(both)[0]:.3f}"
    alone = holm([endings.fisher(grpo_last, other, runs, runs) for other in (real_last, last_without)])
    yield f"by the last evaluation alone it is {grpo_last} against {real_last} ({alone[0]:.2f}"
    yield f"Without its KL GRPO fell in {without}"
    at_best = endings.RATES["4 updates"]
    in_b = endings.fell(endings.cells()["4 updates", "GRPO", at_best["GRPO"]])[0]
    times_more = float(at_best["GRPO"]) / float(at_best["REAL"])
    yield f"{words(in_b)} of the {grpo} are in B, where GRPO's rate is {times_more:.1f} times REAL's"
    yield f"the mean of its last two evaluations is more than {endings.FELL} below its best"
    (rate, p), (loss, p_loss) = equal_rates.main_effects().values()
    assert p < 0.05 < p_loss and loss.mean < 0
    interval = "95 % {:.3f} to {:.3f}".format(*equal_rates.interval(rate))
    yield f"it is on average {rate.mean:.3f} larger ({interval}, Holm's p {p:.3f}) than at 2e-4"
    low, high = equal_rates.interval(loss)
    yield f"REAL's is {-loss.mean:.3f} larger than GRPO's ({-high:.3f} to {-low:.3f}; ±0.02 was predicted)"
    at_low, at_high = (equal_rates.over_training(rate) for rate in equal_rates.RATES)
    assert at_low.p_equivalent < 0.01 and at_high.p_equivalent > 0.05
    yield f"mean pass@1 is {at_low} at 2e-4"
    yield f"and {at_high} at 3e-4, which is not"


def rates_of_16() -> Iterator[str]:
    """16 updates: what the rates that were tried say, and the predictions of rates-16, A1 to A4."""
    assert {best("C", label) for label in OWN} == {1e-4}
    yield f"With 16 updates all {words(len(OWN))} did best at 1e-4"
    yield "with 16 updates it scores {1:.2f}, and {0:.2f} with 0.2/0.3 (seed 1)".format(*clips())
    means = ([np.mean(means) for means in tried("C", label).values()] for label in ("REAL", FIXED))
    real, fixed = (sum(mean > max(of_arm) - 0.1 for mean in of_arm) for of_arm in means)
    assert real > fixed  # "REAL does well at more rates"
    tests = ("REAL", FIXED), ("REAL", "GRPO"), ("ratio none", NEITHER)
    assert {concluded("C", *arms).conclusion for arms in tests} == {"inconclusive"}
    yield "one held, three were inconclusive"


def methods() -> Iterator[str]:
    """Of docs/use/algorithms.md."""
    erring = {cell[:2]: arm for cell, arm in shared_errors.cells().items()}
    ends = [erring[method, "random"].ends().mean() for method in PLAIN]
    yield f"accepted at random, REAL, GRPO and DAPO ended at {min(ends):.2f} to {max(ends):.2f}"
    lost, runs = lost_to_a_kind()
    yield f"{lost} of their {runs} runs [ended below 0.2]"
    ends = erring["unbiased_bce", "random"].ends()
    yield f"ended at 0 in {words((ends == 0).sum())} of {words(len(ends))} runs with errors at random"
    (lower,) = {f"{-between('B', 'REAL', other).mean:.2f}" for other in ("GRPO", "DAPO")}
    yield f"REAL's mean pass@1 was {lower} lower ({seeds('B')} seeds, inconclusive)"
    conclusion = concluded("B", "REAL", "GRPO").conclusion
    yield f"with {words(seeds('B'))}, {between('B', 'GRPO', 'REAL').unsigned} was [{conclusion}]"
    over = endings.over_training()[0].mean
    yield f"{-over:.3f} lower than GRPO's, {at_equal_rates()}"
    found = {label: concluded("C", "REAL", label) for label in OWN if label != "REAL"}
    alike = words([one.conclusion for one in found.values()].count("equivalent"))
    two = [found[label].gap.mean for label in ("GRPO", FIXED)]
    yield f"there {alike} are equivalent to REAL, and GRPO {two[0]:.2f} and fixed weights {two[1]:.2f} lower"
    high = [concluded("D", "REAL", label).conclusion for label in ("ratio none", BALANCED, "GSPO", "GRPO")]
    assert high == ["lower"] * 3 + ["higher"]
    yield f"they reached more than REAL, and REAL more than GRPO at three times its own ({seeds('D')} seeds)"
    yield f"GRPO ran at 1.5 times its own, DAPO untuned ({seeds('E')} seeds)"
    yield f"0.2/0.3 reached {np.subtract(*clips()):.2f} more]"
    least = "rollout policy, tau 0.1"
    ahead = between("H", "GRPO corrected", "REAL").mean
    yield f"plain REAL reached {ahead:.2f} less than GRPO with importance correction"
    yield f"Three methods were equivalent with four batches waiting ({seeds('H')} seeds, each at the highest"
    assert all(between("H", least, label).mean > 0.03 for label in ("CISPO", "ReNCE", "OAPL"))
    yield f"0.1 reached {between('H', 'tau 0.1', 'REAL').unsigned} more, at twice the learning rate"
    rates = [f"{best('B', label):.0e}".replace("e-0", "e-") for label in ("REAL", "GRPO")]
    yield f"on `cpu` the best was {rates[0]} for REAL and {rates[1]} for GRPO"
    more = [float(row[5]) / float(row[3]) for row in older_z() if row[1] == "4"]
    yield f"with four updates it shows about {min(more):.1f} to {max(more):.1f} times as much"


def smollm2() -> Iterator[str]:
    """Of docs/use/smollm2.md."""
    real, grpo = (arm("its page", label) for label in ("REAL", "GRPO"))
    assert best("its page", "REAL") == best("its page", "GRPO") == real.rate == grpo.rate
    start = np.mean([run.evals[0] for run in (*real.runs, *grpo.runs)])
    yield f"From {start:.3f} REAL rose to {pm(real.ends())}, GRPO to {pm(grpo.ends())}"
    rises = [run.evals[20] - run.evals[0] for run in (*real.runs, *grpo.runs)]
    yield f"of {words(len(rises))} runs: {words(sum(rise > 0.1 for rise in rises))} rise by more than 0.1"
    gap, p = smollm2_at_the_end()
    yield f"paired by seed GRPO ended {gap.unsigned} higher (p {gap.p:.3f}; Holm's over five {p:.2f})"


def smollm2_at_the_end() -> tuple[Gap, float]:
    """GRPO less REAL, paired by seed, and p with Holm's correction over all that was compared with REAL."""
    ends: dict[str, dict[int, float]] = defaultdict(dict)
    for name, run in (campaign("smollm2") | campaign("smollm2-controls")).items():
        ends[name.rpartition("-s")[0]][run.seed] = run.evals[20]
    real = ends.pop("real-lr-3e-05")
    family = {name: np.array([end - real[seed] for seed, end in of.items()]) for name, of in sorted(ends.items())}
    assert len(family) == 5
    return paired(family)["grpo-lr-3e-05"]


def lost_to_a_kind() -> tuple[int, int]:
    """How many runs of REAL, GRPO and DAPO, of how many, where the verifier accepts a kind of wrong answer."""
    arms = [arm for (method, error, _), arm in shared_errors.cells().items() if error == "kind" and method in PLAIN]
    ends = np.concatenate([arm.ends() for arm in arms])
    assert sum(map(shared_errors.lost, arms)) == (ends < 0.2).sum()
    return int((ends < 0.2).sum()), len(ends)


def logs() -> Iterator[str]:
    """Of benchmarks/z_from_logs/PREDICTIONS.md: z of all runs of REAL beside the bounds by their KL."""
    flags = ("--algo.real.objective", "--algo.real.tau", "--algo.real.set")
    older = [folder for folder in FOLDERS if folder.partition("/")[0] not in POOLED_Z]
    runs = [run for folder in older for run in campaign(folder).values() if run.updates >= 2]
    runs = [run for run in runs if [str(run.flags.get(flag)) for flag in flags] == ["real", "0.5", "None"]]
    found = np.array([spreads(run) for run in runs])
    z, least, independent, length = found[found[:, 2] > 0].T
    together = independent * np.sqrt(length)
    yield f"Of all {len(runs)} records of REAL (τ 0.5) with two updates or more, {len(z)} have a positive mean KL"
    yield f'below "together" in {sum(z < together)}, but above "independent" in {sum(z > independent)}'
    (median, *ends), floor = (np.quantile(ratio / independent, (0.5, 0.1, 0.9)) for ratio in (z, least))
    yield 'It is {:.2f} times "independent" (80 % of runs: {:.2f} to {:.2f})'.format(median, *ends)
    yield f"by at least {min(least / z):.2f} to {max(least / z):.2f}"
    yield "with this least factor the ratio is {:.2f} ({:.2f} to {:.2f})".format(*floor)
    yield f"about the value, at {min(length):.0f} to {max(length):.0f} tokens"
    yield f"z was {np.median(z / together):.2f} times it"


def seeds(place: str) -> int:
    return len(arm(place, "REAL").runs)


def words(number: int) -> str:
    return "zero one two three four five six seven eight nine ten eleven twelve".split()[number]


def table_1(side: str) -> float:
    """The largest spread of log-ratios that has these bins, with every ratio within 1/4 to 4."""
    most = 0.0
    for share, ratio, low, high in TABLE_1[side]:
        low, high = max(low, 1 / 4), min(high, 4)
        # all mass at the ends of a bin, and of a clipped one at the far end
        above = (ratio - low) / (high - low) if ratio else float(high > 1)
        most += share / 100 * ((1 - above) * math.log(low) ** 2 + above * math.log(high) ** 2)
    return math.sqrt(most)


def clips() -> list[float]:
    """Seed 1 of GSPO with the clip 0.2/0.3 and with the paper's, 16 updates at 1e-4."""
    return [tried(place, "GSPO")[1e-4][0] for place in "CD"]
