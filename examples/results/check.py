"""Compute every measured number of README.md and docs/evidence/results.md again, without the project's code:

    python examples/results/check.py

It reads the pages and the parquet files of this folder, and nothing else; it needs numpy, pyarrow and mpmath. Exit 1
if a number differs, or if a page has a decimal that no line here computes. A run's name says which arm it is.
"""

import functools
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet
from mpmath import betainc, findroot

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = ROOT / "docs" / "evidence" / "results.md"
README = ROOT / "README.md"
FAILED = re.compile(r"weights-small/real_shrunk-s11$|real_balanced-lr-3e-3-.*|real_constant-lr-1e-3-batch_size-16-.*")
NUMBER = re.compile(r"(?<![\w.])-?[01]\.\d{2,4}(?![\d.]*\.\d|\w)")  # a share, and no version
PM = "±"


@dataclass(frozen=True)
class Run:
    name: str
    evals: dict[int, float]  # step -> pass@1
    train: dict[str, dict[int, float]]

    @property
    def seed(self) -> int:
        return int(self.name.rpartition("-s")[2])

    def curve(self, planned: int) -> list[float]:
        """At every evaluation until the planned end; a run that was stopped keeps its last value."""
        every = min(step for step in self.evals if step > 0)
        steps = sorted({*range(every, planned + 1, every), planned})
        return [self.evals[max(known for known in self.evals if known <= step)] for step in steps]

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
    return {run: Run(run, evals[run], train[run]) for run in evals if max(evals[run]) > 0 and not FAILED.search(run)}


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

    def of(self, what: Callable[[list[float]], float], seeds: Sequence[int] = ()) -> np.ndarray:
        return np.array([what(self.runs[s].curve(self.planned)) for s in seeds or sorted(self.runs)])

    def means(self, *seeds: int) -> np.ndarray:
        return self.of(np.mean, seeds)  # type: ignore[arg-type]

    def ends(self, *seeds: int) -> np.ndarray:
        return self.of(lambda curve: curve[-1], seeds)

    def last(self, key: str) -> np.ndarray:
        """A training number: the mean over the last tenth of the steps."""
        span = max(1, math.ceil(self.planned / 10))
        return np.array(
            [np.mean([v for s, v in run.train[key].items() if s > self.planned - span]) for run in self.runs.values()]
        )

    @property
    def zs(self) -> np.ndarray:
        return np.array([run.z for run in self.runs.values()])


def died(curve: Sequence[float], first: float = 0.0) -> bool:
    return curve[-1] < max([*curve, first]) / 2


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

    @property
    def p(self) -> float:
        t = self.mean / self.se
        return float(betainc(self.freedom / 2, 0.5, 0, self.freedom / (self.freedom + t * t), regularized=True))

    def detectable(self, rows: int) -> float:
        return detected(t_quantile(1 - 0.025 / rows, self.freedom), self.freedom) * self.se

    def verdict(self, corrected: float) -> str:
        if corrected < 0.05:
            return "higher" if self.mean > 0 else "lower"
        return "level" if abs(self.mean) + t_quantile(0.95, self.freedom) * self.se < 0.03 else "open"


def holm(ps: Sequence[float]) -> list[float]:
    order = np.argsort(ps)
    steps = [min(1.0, (len(ps) - place) * ps[index]) for place, index in enumerate(order)]
    highest = np.maximum.accumulate(steps)
    return [float(highest[np.flatnonzero(order == index)[0]]) for index in range(len(ps))]


def pm(values: np.ndarray, digits: int = 3) -> str:
    return f"{values.mean():.{digits}f} {PM} {values.std(ddof=1) / math.sqrt(len(values)):.{digits}f}"


def pairs(a: np.ndarray, b: np.ndarray, rows: int) -> tuple[str, str]:
    """The announced test of older campaigns: the mean difference of seeds, and Student's bound for so many rows."""
    gaps = a - b
    se = gaps.std(ddof=1) / math.sqrt(len(gaps))
    return f"{abs(gaps.mean()):.3f} {PM} {se:.3f}", f"{t_quantile(1 - 0.025 / rows, len(gaps) - 1) * se:.3f}"


# The arms of each place. Order and number of all arms matter: Holm's correction is over a place's arms beside REAL.

CONSTANT, BALANCED, SAMPLER = "REAL, constant weights", "REAL, balanced", "sampler"
TABLE = {
    "REAL": "real",
    CONSTANT: "real_constant",
    BALANCED: "real_balanced",
    "GRPO": "grpo",
    "DAPO": "dapo",
    "GSPO": "gspo",
    "CISPO": "cispo",
    "REINFORCE": "reinforce",
}
CLEAN = "-data-comparison_noisy_right-to-wrong-0.jsonl"
ON, TAU = "-set-score=log_ratio_rollout", "-tau-0.1"
FIX = "-is_correction_level-token-is_correction_mode-clip-is_correction_threshold-2"
OLD = {  # the arms of `next/old-*`, each at its own rate
    "REAL": ("real-objective-real-tau-0.5", "0.0001"),
    SAMPLER: (f"real-objective-real{ON}-tau-0.5", "0.0001"),
    "tau 0.1": (f"real-objective-real{TAU}", "0.0002"),
    "sampler, tau 0.1": (f"real-objective-real{ON}{TAU}", "0.0002"),
    "GRPO corrected": (f"grpo{FIX}", "0.0002"),
    "CISPO": ("cispo", "0.0001"),
    "OAPL": ("real-objective-.*_oapl-.*", "5e-05"),
    "VESPO": ("real-objective-.*_vespo-.*", "0.0002"),
    "ReNCE": ("real-objective-.*_rence", "0.0001"),
}
PLACES: dict[str, dict[str, tuple[str, ...]]] = {
    "Tuned, 4 updates": {label: (f"next/table-7a0258d5:{name}-lr-.*",) for label, name in TABLE.items()},
    "Hard task, same rates": {label: (f"next/table-hard-7a0258d5:{name}-lr-.*",) for label, name in TABLE.items()},
    "Pretrained, tuned": {
        "REAL": ("smollm2-mixed:real-lr-3e-05",),
        CONSTANT: ("smollm2-mixed:real_constant-lr-3e-05",),
        "GRPO": ("smollm2-mixed:grpo-lr-3e-05",),
        "GSPO": ("smollm2-mixed:gspo-lr-3e-05",),
    },
    "Pretrained, fresh seeds": {
        label: (f"next/pretrained-78089738:{name}",)
        for label, name in (
            ("REAL", "real"),
            ("GRPO", "grpo"),
            ("DAPO", "dapo"),
            ("GSPO", "gspo"),
            (CONSTANT, "real_constant"),
        )
    },
    "Old answers, one rate": {
        "REAL": ("weights:weights-age/real",),
        SAMPLER: (f"weights:weights-age/real{ON}",),
        "tau 0.1": (f"weights:weights-age/real{TAU}",),
        "sampler, tau 0.1": (f"weights:weights-age/real{ON}{TAU}",),
        CONSTANT: ("weights:weights-age/real_constant",),
        "CISPO": ("weights:weights-age/cispo",),
    },
    "16 updates, one rate": {
        label: (f"weights:weights-small/{name}", f"weights:weights-seeds/{name}")
        for label, name in (
            ("REAL", "real"),
            (CONSTANT, "real_constant"),
            ("permuted", "real_permuted"),
            ("shrunk", "real_shrunk"),
            ("GRPO", "grpo"),
        )
    },
    "16 updates, fresh seeds": {
        label: (f"next/ratio-7a0258d5:{name}",)
        for label, name in (
            ("REAL", "real"),
            *((f"ratio {side}", f"real-objective-.*_ratio_{side}") for side in ("both", "right", "wrong", "none")),
            (CONSTANT, "real_constant"),
            (BALANCED, "real_balanced"),
            ("GRPO", "grpo"),
            ("GSPO", "gspo"),
            ("CISPO", "cispo"),
            ("REINFORCE", "reinforce"),
        )
    },
    "1 update, hard task, tuned": {
        label: (f"next/group-weights-7a0258d5:{name}-lr-0.0006",)
        for label, name in (
            ("REAL", "real"),
            (BALANCED, "real_balanced"),
            ("GRPO", "grpo"),
            ("REINFORCE", "reinforce"),
        )
    },
    **{
        place: {label: (f"next/old-{age}-7a0258d5:{name}-lr-{rate}",) for label, (name, rate) in OLD.items()}
        for place, age in (
            ("Old answers, tuned", 4),
            ("Fresh answers at the same rates", 0),
            ("One waiting batch, same rates", 1),
            ("Two waiting batches, same rates", 2),
            ("Eight waiting batches, same rates", 8),
        )
    },
}


APART = {  # of no table: rates of another starting model, on two machines; and arms without REAL
    "Tuned, at stale rates": {"REAL": ("tune:real-lr-0.0003",), "GRPO": ("tune:grpo-lr-0.0003",)},
    "The same on another machine": {"REAL": (f"noise:real{CLEAN}",), "GRPO": (f"noise:grpo{CLEAN}",)},
    "Old answers, one rate, GRPO's ratio": {
        f"ratio {side}": (f"next/ratio-old-7a0258d5:real-objective-.*_ratio_{side}",)
        for side in ("both", "right", "wrong", "none")
    },
}

AGAIN = "next/table-skill-7a0258d5"  # the runs of `next/table-7a0258d5`, made a second time


@functools.cache
def arm(place: str, label: str) -> Arm:
    return Arm(*{**PLACES, **APART}[place][label])


@functools.cache
def gaps(place: str) -> dict[str, tuple[Gap, str, int]]:
    """Every arm less REAL by the mean over training, with its verdict and the number of arms."""
    others = [label for label in PLACES[place] if label != "REAL"]
    found = [Gap.of(arm(place, label).means(), arm(place, "REAL").means()) for label in others]
    corrected = holm([gap.p for gap in found])
    return {label: (gap, gap.verdict(p), len(others)) for label, gap, p in zip(others, found, corrected, strict=True)}


def everywhere() -> Iterator[list[str]]:
    for place, arms in PLACES.items():
        if not {CONSTANT, "GRPO", "GSPO"} & set(arms):
            continue
        real = arm(place, "REAL")
        row = [place, pm(real.zs, 2), pm(real.means())]
        for label in (CONSTANT, "GRPO", "GSPO"):
            if label in arms:
                gap, verdict, rows = gaps(place)[label]
                seen = f" ({gap.detectable(rows):.2f})" if verdict == "open" else ""
                row.append(f"{gap.mean:+.3f} {PM} {gap.se:.3f}, {verdict}{seen}")
            else:
                row.append("–")
        yield [*row, str(len(real.runs))]


# The cells: REAL and constant weights with equal flags and seeds


@dataclass(frozen=True)
class Cell:
    name: str
    z: float
    gain: float
    seeds: int
    deaths: tuple[int, int]  # only constant weights, only REAL


@functools.cache
def cells() -> tuple[Cell, ...]:
    """Of all campaigns but `map`, whose optimizer is gone, and the runs that repeat others; a cell in which neither
    arm learned compares nothing."""
    arms: dict[tuple[str, str, str], dict[int, Run]] = defaultdict(dict)
    for folder in sorted(str(path.parent.relative_to(HERE)) for path in HERE.rglob("metrics.parquet")):
        for name, run in campaign(folder).items() if folder not in ("map", AGAIN) else ():
            part, _, word = name.rpartition("/")
            part = {"weights-small": "16", "weights-seeds": "16", "smollm2-controls": "smollm2"}.get(
                part or folder, part or folder
            )
            if match := re.fullmatch(r"(real(?:_constant)?)((?:-.*)?)-s(\d+)", word):
                rest = re.sub(r"lr-([\d.]+(?:e-?\d+)?)", lambda rate: f"lr-{float(rate[1])}", match[2])
                arms[part, rest, match[1]][int(match[3])] = run
    return tuple(_cells(arms))


def _cells(arms: dict[tuple[str, str, str], dict[int, Run]]) -> Iterator[Cell]:
    for (part, rest, algo), frozen in arms.items():
        real = arms.get((part, rest, "real"), {})
        seeds = sorted(frozen.keys() & real.keys())
        if algo == "real" or not seeds:
            continue
        planned = max(max(run.evals) for side in (frozen, real) for run in side.values())
        curves = [[side[seed].curve(planned) for seed in seeds] for side in (real, frozen)]
        means = [np.mean([np.mean(curve) for curve in side]) for side in curves]
        ends = [
            [died(curve, side[seed].evals.get(0, 0.0)) for curve, seed in zip(found, seeds, strict=True)]
            for found, side in zip(curves, (real, frozen), strict=True)
        ]
        deaths = tuple(sum(a and not b for a, b in zip(*ends[::order], strict=True)) for order in (-1, 1))
        if max(means) >= 0.1:
            z = float(np.mean([real[seed].z for seed in seeds]))
            yield Cell(f"{part}{rest}", z, float(means[0] - means[1]), len(seeds), deaths)  # type: ignore[arg-type]


def by_z() -> Iterator[list[str]]:
    for title, low, high in (("at most 0.03", -1, 0.03), ("0.03 to 0.1", 0.03, 0.1), ("above 0.1", 0.1, math.inf)):
        here = [cell for cell in cells() if low < cell.z <= high]
        deaths = [str(sum(cell.deaths[side] for cell in here)) for side in (0, 1)]
        yield [title, str(len(here)), str(sum(c.seeds for c in here)), pm(np.array([c.gain for c in here])), *deaths]


def rank(values: Sequence[float]) -> np.ndarray:
    """Ranks; equal values share the mean of theirs."""
    array = np.array(values)
    return np.array([(np.sum(array < one) + np.sum(array <= one) + 1) / 2 for one in array])


def tuned() -> Iterator[list[str]]:
    for label in TABLE:
        found = arm("Tuned, 4 updates", label)
        yield [label, pm(found.means()), pm(found.ends()), pm(found.last("rollout/entropy"))]


TABLES = {"places everywhere": everywhere, "places by_z": by_z, "next/table-7a0258d5 results": tuned}


def said() -> dict[Path, list[str]]:
    """What the pages say beside their tables, with its numbers computed here."""
    from sentences import sentences  # its own file, as it changes with the pages

    return sentences()


def problems() -> Iterator[str]:
    for page, sentences in said().items():
        text = page.read_text()
        for name, title in re.findall(r"<!-- table: ((\S+) \w+)[^>]*-->", text):
            if name not in TABLES:
                yield f"{page.name}: nothing here computes the table {title}: {name}"
        for name, rows in TABLES.items():
            for block in re.findall(rf"<!-- table: {name}\b.*?-->\n(.*?)<!-- end -->", text, re.DOTALL):
                shown = [[cell.strip() for cell in line.split("|")[1:-1]] for line in block.splitlines()[2:]]
                computed = list(rows())
                yield from (f"{page.name}: {name}: {one}, not {other}" for one, other in unlike(shown, computed))
        prose = re.sub(r"<!-- table.*?<!-- end -->|^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        prose = " ".join(prose.split())
        for sentence in sentences:
            if sentence not in prose:
                yield f"{page.name} does not say: {sentence}"
            prose = prose.replace(sentence, " ")
        yield from (f"{page.name}: nothing here computes {number}" for number in NUMBER.findall(prose))


def unlike(shown: list[list[str]], computed: list[list[str]]) -> Iterator[tuple[list[str], list[str]]]:
    if len(shown) != len(computed):
        yield [f"{len(shown)} rows"], [f"{len(computed)} rows"]
    yield from ((one, other) for one, other in zip(shown, computed, strict=False) if one != other)


def main() -> int:
    found = list(problems())
    for problem in found:
        print(problem, file=sys.stderr)
    rows = sum(len(list(make())) for make in TABLES.values())
    sentences = sum(map(len, said().values()))
    print(f"{rows} rows of tables and {sentences} sentences read, {len(found)} problems")
    return int(bool(found))


if __name__ == "__main__":
    sys.modules["check"] = sys.modules["__main__"]  # sentences.py imports it
    sys.exit(main())
