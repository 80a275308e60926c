"""Compute every measured number of README.md, docs/evidence/results.md and archive/comparisons.md again, without the
project's code:

    python examples/results/check.py

It reads the pages and the records of this folder, and nothing else; it needs numpy, pyarrow and mpmath. Exit 1 if a
number differs, if a page has a decimal that no line here computes, or if a sentence is about something else than its
number: an arm that does not compute what the sentence says (PARTS), a learning rate that is not the method's best and
goes unsaid, or a conclusion that is none of CONCLUSIONS. A run's name says which arm it is.
"""

import csv
import functools
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet
from mpmath import betainc, findroot

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "docs" / "evidence" / "results.md"
COMPARISONS = HERE / "archive" / "comparisons.md"
README = ROOT / "README.md"
FAILED = re.compile(r"weights-small/real_shrunk-s11$|real_balanced-lr-3e-3-.*|real_constant-lr-1e-3-batch_size-16-.*")
NUMBER = re.compile(r"(?<![\w.])-?[01]\.\d{2,4}(?![\d.]*\.\d|\w)")  # a share, and no version
PM = "±"
RATE = "--actor.adam.lr"
MARGIN = 0.03  # differences within it are equivalent


@dataclass(frozen=True)
class Run:
    name: str
    rate: float  # the learning rate of its record
    evals: dict[int, float]  # step -> pass@1
    train: dict[str, dict[int, float]]

    @property
    def seed(self) -> int:
        return int(self.name.rpartition("-s")[2])

    def curve(self, planned: int) -> dict[int, float]:
        """Every evaluation until the planned end. A run that was stopped keeps its last value; an evaluation that a
        run lacks between two others stays missing."""
        every, last = min(step for step in self.evals if step > 0), max(self.evals)
        steps = sorted({*range(every, planned + 1, every), planned})
        return {step: self.evals[min(step, last)] for step in steps if step in self.evals or step > last}

    @property
    def z(self) -> float:
        spread, largest, bound = (
            [*self.train[f"real/{key}"].values()] for key in ("score_std", "weight_abs_max", "weight_bound")
        )
        return float(np.mean(spread)) * max(largest) / max(bound)


@functools.cache
def campaign(folder: str) -> dict[str, Run]:
    evals: dict[str, dict] = defaultdict(dict)
    train: dict[str, dict] = defaultdict(lambda: defaultdict(dict))
    columns = pyarrow.parquet.read_table(HERE / folder / "metrics.parquet").to_pydict()
    lines = [*zip(columns.pop("run"), columns.pop("phase"), columns.pop("step"), strict=True)]
    for key, values in columns.items():
        is_pass1 = re.fullmatch(r"eval_\w+_pass1", key)
        for (run, phase, step), value in zip(lines, values, strict=True):
            if isinstance(value, float) and phase == "train":
                train[run][key][step] = value
            elif isinstance(value, float) and is_pass1:
                evals[run][step] = value
    known = rates(folder)
    trained = (run for run in evals if max(evals[run]) > 0 and not FAILED.search(run))
    return {run: Run(run, known[run], evals[run], train[run]) for run in trained}


def rates(folder: str) -> dict[str, float]:
    """{run: its learning rate}"""
    common = json.loads((HERE / folder / "campaign.json").read_text())["common"].get("flags", {})
    with (HERE / folder / "runs.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    return {row["name"]: float(row.get(f"flags/{RATE}") or common.get(RATE, "nan")) for row in rows}


class Arm:
    """The runs of one method in one place, by the pattern of their names."""

    def __init__(self, *places: str):
        self.runs: dict[int, Run] = {}
        every: list[Run] = []
        for place in places:
            folder, _, pattern = place.partition(":")
            part = pattern.partition("/")[0] + "/" if "/" in pattern else ""
            every += [run for name, run in campaign(folder).items() if name.startswith(part)]
            found = [r for r in campaign(folder).values() if re.fullmatch(pattern + r"-s\d+", r.name)]
            self.runs |= {run.seed: run for run in found}
        assert self.runs, places
        self.planned = max(max(run.evals) for run in every)

    def curves(self) -> list[dict[int, float]]:
        return [self.runs[seed].curve(self.planned) for seed in sorted(self.runs)]

    @property
    def steps(self) -> set[int]:
        """The evaluations that all runs have."""
        return set.intersection(*(set(curve) for curve in self.curves()))

    def means(self, *, steps: set[int] | None = None) -> np.ndarray:
        return np.array([np.mean([curve[s] for s in sorted(steps or curve)]) for curve in self.curves()])

    def ends(self) -> np.ndarray:
        return np.array([curve[max(curve)] for curve in self.curves()])

    def collapses(self) -> int:
        return sum(map(collapsed, self.curves(), (self.runs[seed].evals[0] for seed in sorted(self.runs))))

    @property
    def rate(self) -> float:
        (rate,) = {run.rate for run in self.runs.values()}
        return rate

    def last(self, key: str) -> np.ndarray:
        """A training number: the mean over the last tenth of the steps."""
        span = max(1, math.ceil(self.planned / 10))
        return np.array(
            [np.mean([v for s, v in run.train[key].items() if s > self.planned - span]) for run in self.runs.values()]
        )


def collapsed(curve: dict[int, float], first: float = 0.0) -> bool:
    return curve[max(curve)] < max([*curve.values(), first]) / 2


# Statistics


def t_quantile(share: float, freedom: float) -> float:
    wanted = 2 * (1 - share)
    x = findroot(lambda x: betainc(freedom / 2, 0.5, 0, x, regularized=True) - wanted, (0, 1), solver="bisect")
    return math.sqrt(freedom * (1 / x - 1))


def detected(bound: float, freedom: float) -> float:
    """The noncentrality at which Student's t is above the bound in 80 % of samples, by Gauss and Laguerre's rule."""
    half, weights = np.polynomial.laguerre.laggauss(100)  # half of a chi-squared number
    weights = weights * np.exp((freedom / 2 - 1) * np.log(half) - math.lgamma(freedom / 2))

    def power(size: float) -> float:
        above = [math.erfc((bound * math.sqrt(2 * x / freedom) - float(size)) / math.sqrt(2)) / 2 for x in half]
        return float(np.dot(weights, above))

    return float(findroot(lambda size: power(size) - 0.8, (bound, bound + 3), solver="illinois", tol=1e-9))


@dataclass(frozen=True)
class Gap:
    """Welch's difference of two samples."""

    mean: float
    se: float
    freedom: float

    @classmethod
    def of(cls, a: np.ndarray, b: np.ndarray) -> "Gap":
        u, v = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
        freedom = (u + v) ** 2 / (u**2 / (len(a) - 1) + v**2 / (len(b) - 1))
        return cls(float(a.mean() - b.mean()), math.sqrt(u + v), float(freedom))

    @classmethod
    def between(cls, one: Arm, other: Arm) -> "Gap":
        """By the mean over training, on the evaluations that both arms have."""
        both = one.steps & other.steps
        return cls.of(one.means(steps=both), other.means(steps=both))

    def _p(self, distance: float) -> float:
        t = distance / self.se
        return float(betainc(self.freedom / 2, 0.5, 0, self.freedom / (self.freedom + t * t), regularized=True))

    @property
    def p(self) -> float:
        return self._p(self.mean)

    @property
    def p_equivalent(self) -> float:
        """Two one-sided tests of a difference of MARGIN or more."""
        inside = MARGIN - abs(self.mean)
        return self._p(inside) / 2 if inside > 0 else 1 - self._p(inside) / 2

    def detectable(self, rows: int) -> float:
        return detected(t_quantile(1 - 0.025 / rows, self.freedom), self.freedom) * self.se


CONCLUSIONS = ("supported", "opposite in our setting", "equivalent within 0.03", "inconclusive")


def conclusions(gaps: Sequence[Gap]) -> list[str]:
    """Of differences that a claim says are above 0: both tests at 5 %, with Holm's correction over all of them."""
    found = []
    for gap, p, same in zip(gaps, holm([g.p for g in gaps]), holm([g.p_equivalent for g in gaps]), strict=True):
        direction = CONCLUSIONS[0 if gap.mean > 0 else 1]
        found.append(direction if p < 0.05 else CONCLUSIONS[2] if same < 0.05 else CONCLUSIONS[3])
    return found


def holm(ps: Sequence[float]) -> list[float]:
    order = np.argsort(ps)
    steps = [min(1.0, (len(ps) - place) * ps[index]) for place, index in enumerate(order)]
    highest = np.maximum.accumulate(steps)
    return [float(highest[np.flatnonzero(order == index)[0]]) for index in range(len(ps))]


def pm(values: np.ndarray, digits: int = 3) -> str:
    return f"{values.mean():.{digits}f} {PM} {values.std(ddof=1) / math.sqrt(len(values)):.{digits}f}"


# The arms of each place. All arms of a place count: Holm's correction is over those beside REAL.

FIXED, BALANCED, SAMPLER, NEITHER = "fixed weights", "balanced", "rollout policy", "ratio none, no clip"
TABLE = {
    "REAL": "real",
    FIXED: "real_constant",
    BALANCED: "real_balanced",
    "GRPO": "grpo",
    "DAPO": "dapo",
    "GSPO": "gspo",
    "CISPO": "cispo",
    "REINFORCE": "reinforce",
}
SIDES = ("both", "right", "wrong", "none")  # where the ratio stays in the gradient of GRPO's surrogate
CLEAN = "-data-comparison_noisy_right-to-wrong-0.jsonl"
ON, TAU = "-set-score=log_ratio_rollout", "-tau-0.1"
FIX = "-is_correction_level-token-is_correction_mode-clip-is_correction_threshold-2"
STALE = {  # the arms of `next/old-*` with the names that they had when their rates were tried
    "REAL": ("real-objective-real-tau-0.5", "real"),
    SAMPLER: (f"real-objective-real{ON}-tau-0.5", f"real{ON}"),
    "tau 0.1": (f"real-objective-real{TAU}", f"real{TAU}"),
    "rollout policy, tau 0.1": (f"real-objective-real{ON}{TAU}", f"real{ON}{TAU}"),
    "GRPO corrected": (f"grpo{FIX}", f"grpo{FIX}"),
    "CISPO": ("cispo", "cispo"),
    "OAPL": ("real-objective-.*_oapl-.*", "real-.*_oapl"),
    "VESPO": ("real-objective-.*_vespo-.*", "real-.*_vespo"),
    "ReNCE": ("real-objective-.*_rence", "real-.*_rence"),
}
NO_RATIO = "real-objective-.*_ratio_none"
OWN = {  # 16 updates, each method at its own rate: rates on seeds 1 to 3, then seeds 91 to 106
    **{label: TABLE[label] for label in ("REAL", FIXED, "GRPO")},
    BALANCED: "real-objective-.*_balanced",
    "GSPO": "gspo-eps_clip_low_high-0.2-0.3",
    "ratio none": NO_RATIO,
    NEITHER: f"{NO_RATIO}-set-low=1e9-high=1e9",
}
PLACES: dict[str, dict[str, tuple[str, ...]]] = {
    "4 updates": {label: (f"next/table-7a0258d5:{name}-lr-.*",) for label, name in TABLE.items()},
    "hard task": {label: (f"next/table-hard-7a0258d5:{name}-lr-.*",) for label, name in TABLE.items()},
    "pretrained": {label: (f"smollm2-mixed:{TABLE[label]}-lr-3e-05",) for label in ("REAL", FIXED, "GRPO", "GSPO")},
    "pretrained, again": {
        label: (f"next/pretrained-78089738:{TABLE[label]}",) for label in ("REAL", "GRPO", "DAPO", "GSPO", FIXED)
    },
    "16 updates": {label: (f"rates-16:{name}-lr-.*(?=-s(?:9|10)[0-9]$)",) for label, name in OWN.items()},
    "16 updates, 3e-4": {
        **{label: (f"next/ratio-7a0258d5:{name}",) for label, name in TABLE.items() if label != "DAPO"},
        **{f"ratio {side}": (f"next/ratio-7a0258d5:real-objective-.*_ratio_{side}",) for side in SIDES},
    },
    "1 update": {
        label: (f"next/group-weights-7a0258d5:{TABLE[label]}-lr-0.0006",)
        for label in ("REAL", BALANCED, "GRPO", "REINFORCE")
    },
    **{
        f"queue of {size}": {label: (f"next/old-{size}-7a0258d5:{name}-lr-.*",) for label, (name, _) in STALE.items()}
        for size in (0, 1, 2, 4, 8)
    },
}
APART = {  # without REAL, or without a comparison of methods
    "stale": {f"ratio {side}": (f"next/ratio-old-7a0258d5:real-objective-.*_ratio_{side}",) for side in SIDES},
    "a machine": {"REAL": ("tune:real-lr-0.0003",), "GRPO": ("tune:grpo-lr-0.0003",)},
    "another machine": {"REAL": (f"noise:real{CLEAN}",), "GRPO": (f"noise:grpo{CLEAN}",)},
}
AGAIN = "next/table-skill-7a0258d5"  # the runs of `next/table-7a0258d5`, made a second time


@functools.cache
def arm(place: str, label: str) -> Arm:
    return Arm(*{**PLACES, **APART}[place][label])


def between(place: str, one: str, other: str) -> Gap:
    return Gap.between(arm(place, one), arm(place, other))


# What an arm computes, as examples/objectives/ and the recipes define it

PARTS = {"ratio", "clip", "KL"}
COMPUTES = {
    "GRPO": {"ratio", "clip", "KL"},
    "DAPO": {"ratio", "clip"},
    "GSPO": {"ratio", "clip"},
    "CISPO": {"ratio"},  # a cap of 5, which lets every token keep its gradient
    "REINFORCE": {"ratio"},
    **{f"ratio {side}": {"ratio", "clip"} for side in SIDES[:3]},
    "ratio none": {"clip"},
    NEITHER: set(),
}
LACKS = (
    r"(?:without (?:the |that |its )?|no |drops? (?:the |GRPO's )?|removes? (?:the )?){part}|{part} (?:is )?removed"
)


def misnamed(text: str) -> Iterator[str]:
    """Methods of which a clause says that they lack a part that they have."""
    for clause in re.split(r"[.;:|]\s|\bkeep|\band (?=drop)", text):
        for part in PARTS:
            if re.search(LACKS.replace("{part}", part), clause, re.IGNORECASE):
                named = [name for name in COMPUTES if re.search(rf"\b{name}\b(?!'s)", clause)]
                yield from (f"{name} has the {part}: {clause.strip()}" for name in named if part in COMPUTES[name])


# Each arm's learning rate as a multiple of the best that was tried for its method in that place

HARD, DEMO = "rates:tune-hard-rates/{}", "rates:demo-rates/{}"
TRIED = {  # where; a method that is not there was not tried
    "4 updates": "next/table-rates-7a0258d5:{}",
    "hard task": HARD,  # older code, one seed
    "pretrained": "rates:smollm2-mixed-rates/{}",
    "pretrained, again": "rates:smollm2-mixed-rates/{}",
    **dict.fromkeys(("16 updates", "16 updates, 3e-4"), "rates-16:{}-lr-{rate}(?=-s[1-3]$)"),
    "1 update": "next/group-weights-rates-7a0258d5:{}",
    **{f"queue of {size}": "next/old-rates-7a0258d5:{}" for size in (0, 1, 2, 4, 8)},
}
NUMBER_IN_NAME = r"([\d.]+(?:e-?\d+)?)"


def by_learning_rate(where: str, name: str) -> dict[float, list[float]]:
    """{learning rate: the mean over training of each run that tried it}"""
    folder, _, pattern = where.partition(":")
    pattern = pattern if "{rate}" in pattern else pattern + "-lr-{rate}"
    runs = [run for run in campaign(folder).values() if re.fullmatch(_filled(pattern, name) + r"-s\d+", run.name)]
    means: dict[float, list[float]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.rate):
        means[run.rate].append(float(np.mean([*run.curve(max(max(one.evals) for one in runs)).values()])))
    return dict(means)


def best(means: dict[float, list[float]]) -> float:
    return max(means, key=lambda rate: np.mean(means[rate]))


@functools.cache
def tried(place: str, label: str) -> dict[float, list[float]]:
    names = {**TABLE, **(OWN if place == "16 updates" else {"ratio none": NO_RATIO})}
    name = STALE[label][1] if place.startswith("queue") else names.get(label, label)
    return by_learning_rate(TRIED[place], name) if place in TRIED else {}


def _filled(pattern: str, name: str) -> str:
    return pattern.replace("{}", name).replace("{rate}", NUMBER_IN_NAME)


def multiple(place: str, label: str) -> float | None:
    """None if fewer than two rates were tried."""
    means = tried(place, label)
    return arm(place, label).rate / best(means) if len(means) > 1 else None


def times(value: float | None) -> str:
    return "?" if value is None else f"{value:.2g}"


# The cells: REAL and fixed weights with equal flags and seeds


@dataclass(frozen=True)
class Cell:
    name: str
    folder: str
    rate: float
    z: float
    gain: float
    seeds: int
    collapses: tuple[int, int, int]  # of fixed weights, of REAL, of both in one seed


@functools.cache
def cells() -> tuple[Cell, ...]:
    """Of all campaigns but `map`, whose optimizer is gone, and the runs that repeat others; a cell in which neither
    arm learned compares nothing."""
    arms: dict[tuple[str, str, str], dict[int, Run]] = defaultdict(dict)
    folders: dict[str, str] = {}
    for folder in sorted(str(path.parent.relative_to(HERE)) for path in HERE.rglob("metrics.parquet")):
        for name, run in campaign(folder).items() if folder not in ("map", AGAIN) else ():
            part, _, word = name.rpartition("/")
            part = {"weights-small": "16", "weights-seeds": "16", "smollm2-controls": "smollm2"}.get(
                part or folder, part or folder
            )
            folders[part] = folder
            if match := re.fullmatch(r"(real(?:_constant)?)((?:-.*)?)-s(\d+)", word):
                rest = re.sub(rf"lr-{NUMBER_IN_NAME}", lambda rate: f"lr-{float(rate[1])}", match[2])
                arms[part, rest, match[1]][int(match[3])] = run
    return tuple(_cells(arms, folders))


def _cells(arms: dict[tuple[str, str, str], dict[int, Run]], folders: dict[str, str]) -> Iterator[Cell]:
    for (part, rest, algo), fixed in arms.items():
        real = arms.get((part, rest, "real"), {})
        seeds = sorted(fixed.keys() & real.keys())
        if algo == "real" or not seeds:
            continue
        planned = max(max(run.evals) for side in (fixed, real) for run in side.values())
        curves = [[side[seed].curve(planned) for seed in seeds] for side in (real, fixed)]
        means = [np.mean([np.mean([*curve.values()]) for curve in side]) for side in curves]
        lost = [
            [collapsed(curve, side[seed].evals.get(0, 0.0)) for curve, seed in zip(found, seeds, strict=True)]
            for found, side in zip(curves, (real, fixed), strict=True)
        ]
        if max(means) >= 0.1:
            z = float(np.mean([real[seed].z for seed in seeds]))
            counts = sum(lost[1]), sum(lost[0]), sum(map(min, *lost))
            gain = float(means[0] - means[1])
            yield Cell(f"{part}{rest}", folders[part], real[seeds[0]].rate, z, gain, len(seeds), counts)


SPREAD = {  # where z is above 0.1: the cells, and where REAL's rates were tried
    "16 updates": (r"16|next/ratio-.*|rates-16.*", TRIED["16 updates"]),
    "stale, queue of 4": (r"weights-age|demo-rates-.*", "next/old-rates-7a0258d5:{}"),
    "4 updates": (r"next/table-rates-.*", TRIED["4 updates"]),
    "hard task": (r"tune-hard-rates-.*", HARD),
    "pretrained": (r"smollm2-mixed-.*|next/pretrained-.*", TRIED["pretrained"]),
    "scores as sums": (r"weights-sums-.*", TRIED["4 updates"]),
}


def spread_cells() -> list[Cell]:
    return [cell for cell in cells() if cell.z > 0.1]


def by_rate() -> Iterator[list[str]]:
    """Where scores spread by more than a tenth of tau: who collapsed, by setting and by REAL's rate over its best."""
    left = {cell.name for cell in spread_cells()}
    for title, (names, where) in SPREAD.items():
        here = [cell for cell in spread_cells() if re.fullmatch(names, cell.name)]
        own = best(by_learning_rate(where, "real"))
        assert here
        left -= {cell.name for cell in here}
        for rate in sorted({cell.rate for cell in here}):
            found = [cell for cell in here if cell.rate == rate]
            fixed, real, both = (sum(cell.collapses[side] for cell in found) for side in range(3))
            pairs = sum(cell.seeds for cell in found)
            yield [title, times(rate / own), str(pairs), str(fixed), str(real), str(both)]
            title = ""
    assert not left, left


def problems() -> Iterator[str]:
    from sentences import facts, sentences, tables  # their own file, as they change with the pages

    for page, wanted in sentences().items():
        text = page.read_text()
        for name in re.findall(r"<!-- table: (\S+ \w+)", text):
            if name not in tables()[page]:
                yield f"{page.name}: nothing here computes the table {name}"
        for name, rows in tables()[page].items():
            if f"<!-- table: {name} " not in text:
                yield f"{page.name} lacks the table {name}"
            for block in re.findall(rf"<!-- table: {name}\b.*?-->\n(.*?)<!-- end -->", text, re.DOTALL):
                shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()[2:]]
                yield from (f"{page.name}: {name}: {one}, not {other}" for one, other in unlike(shown, [*rows()]))
        prose = re.sub(r"<!-- table.*?<!-- end -->|^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        yield from (f"{page.name}: {problem}" for problem in (*about(text), *unsaid(prose, facts())))
        prose = " ".join(prose.split())
        for sentence in wanted:
            if sentence not in prose:
                yield f"{page.name} does not say: {sentence}"
            prose = prose.replace(sentence, " ")
        if page != RESULTS:
            prose = re.sub(rf"[01]\.\d{{3}} {PM} [01]\.\d{{3}}", lambda n: n[0] * (n[0] not in facts()), prose)
        yield from (f"{page.name}: nothing here computes {number}" for number in NUMBER.findall(prose))


def about(text: str) -> Iterator[str]:
    """What a page says of its arms, and the words of its conclusions."""
    yield from misnamed(" ".join(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE).split()))
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()]
        words = {"refuted", "shown", "level", "open", "contradicted"}
        yield from (f"a conclusion is {cell!r}" for row in rows for cell in row if cell in words)


def unsaid(prose: str, known: dict[str, tuple[str, tuple[float | None, ...], str]]) -> Iterator[str]:
    """Numbers of arms at another rate than their best, in a paragraph or row that does not say so; and a conclusion
    beside a number that is not its own."""
    for paragraph in re.split(r"\n\s*\n|\n(?=[|*-] ?)", prose):
        for number in re.findall(rf"[01]\.\d{{3}} {PM} [01]\.\d{{3}}", paragraph):
            place, rates, conclusion = known.get(number, ("", (), ""))
            off_best = any(rate and not 0.99 < rate < 1.01 for rate in rates)
            if off_best and not re.search(r"times|×|tuned on", paragraph):
                yield f"{number} ({place}) is at {', '.join(map(times, rates))} times the best rates: not said"
            said = re.findall(rf"({'|'.join(CONCLUSIONS)}): [^;]*{re.escape(number)}", paragraph)
            yield from (f"{number} ({place}) is {conclusion}, not {word}" for word in said if word != conclusion)


def unlike(shown: list[list[str]], computed: list[list[str]]) -> Iterator[tuple[list[str], list[str]]]:
    if len(shown) != len(computed):
        yield [f"{len(shown)} rows"], [f"{len(computed)} rows"]
    yield from ((one, other) for one, other in zip(shown, computed, strict=False) if one != other)


def main() -> int:
    from sentences import tables

    found, made = list(problems()), [make for of_page in tables().values() for make in of_page.values()]
    for problem in found:
        print(problem, file=sys.stderr)
    print(f"{sum(len([*make()]) for make in made)} rows of tables read, {len(found)} problems")
    return int(bool(found))


if __name__ == "__main__":
    sys.modules["check"] = sys.modules["__main__"]  # sentences.py imports it
    sys.exit(main())
