"""Compute every measured number of the pages again, without the project's code:

    python examples/results/check.py

It reads the pages that sentences.py names and the records of this folder; it needs numpy, pyarrow and mpmath. Exit 1
if a number differs, or if a page has a decimal that no line here computes. A run's name says which arm it is.
"""

import csv
import difflib
import functools
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet
from mpmath import betainc

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NUMBER = re.compile(r"(?<![\w.])-?[01]\.\d{2,4}(?![\d.]*\.\d|\w)")  # a share, and no version
BATCH = ("rollout.batch_size", "rollout.n_samples_per_prompt", "train.batch_size")
MARGIN = 0.03  # differences within it are equivalent


@dataclass(frozen=True)
class Run:
    folder: str
    name: str
    flags: dict[str, str]  # of its record
    evals: dict[int, float]  # step -> pass@1
    logged: dict[str, dict[int, float]]  # everything else

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
    def rate(self) -> float:
        return float(self.flags["--actor.adam.lr"])

    @property
    def updates(self) -> float:
        """Per rollout batch."""
        prompts, responses, batch = (float(self.flags[f"--{flag}"]) for flag in BATCH)
        return prompts * responses / batch

    def of(self, key: str) -> np.ndarray:
        return np.array([*self.logged[key].values()])

    @property
    def z(self) -> float:
        tau = self.of("real/weight_bound").max() / self.of("real/weight_abs_max").max()
        return float(self.of("real/score_std").mean() / tau)


@functools.cache
def campaign(folder: str) -> dict[str, Run]:
    evals: dict[str, dict] = defaultdict(dict)
    logged: dict[str, dict] = defaultdict(lambda: defaultdict(dict))
    columns = pyarrow.parquet.read_table(HERE / folder / "metrics.parquet").to_pydict()
    runs, _, steps = (columns.pop(key) for key in ("run", "phase", "step"))
    for key, values in columns.items():
        is_pass1 = re.fullmatch(r"eval_\w+_pass1", key)
        for run, step, value in zip(runs, steps, values, strict=True):
            if isinstance(value, float):
                (evals[run] if is_pass1 else logged[run][key])[step] = value
    known = flags(folder)
    trained = (run for run in evals if max(evals[run]) > 0)
    return {run: Run(folder, run, known[run], evals[run], logged[run]) for run in trained}


def named(folder: str, pattern: str) -> list[Run]:
    """In the order of their seeds."""
    found = (run for name, run in campaign(folder).items() if re.fullmatch(pattern + r"-s\d+", name))
    return sorted(found, key=lambda run: run.seed)


def flags(folder: str) -> dict[str, dict[str, str]]:
    """{run: {flag: its value}}"""
    common = json.loads((HERE / folder / "campaign.json").read_text())["common"].get("flags", {})
    with (HERE / folder / "runs.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    varied = ({key[6:]: value for key, value in row.items() if key.startswith("flags/") and value} for row in rows)
    return {row["name"]: common | own for row, own in zip(rows, varied, strict=True)}


@dataclass
class Arm:
    """The runs of one method in one place, in the order of their seeds."""

    runs: list[Run]
    planned: int

    def curves(self) -> list[dict[int, float]]:
        return [run.curve(self.planned) for run in self.runs]

    @property
    def steps(self) -> set[int]:
        """The evaluations that all runs have."""
        return set.intersection(*(set(curve) for curve in self.curves()))

    def means(self, *, steps: set[int] | None = None) -> np.ndarray:
        return np.array([np.mean([curve[s] for s in sorted(steps or curve)]) for curve in self.curves()])

    def ends(self) -> np.ndarray:
        return np.array([curve[max(curve)] for curve in self.curves()])

    def mean(self, key: str) -> float:
        """Of a logged number, over runs and steps."""
        return float(np.mean([run.of(key).mean() for run in self.runs]))

    @property
    def rate(self) -> float:
        (rate,) = {run.rate for run in self.runs}
        return rate

    @property
    def z(self) -> float:
        return float(np.mean([run.z for run in self.runs]))

    def collapsed(self) -> np.ndarray:
        """Which runs ended below half of their best, the start included."""
        starts = [run.evals.get(0, 0.0) for run in self.runs]
        bests = [max(start, *curve.values()) for start, curve in zip(starts, self.curves(), strict=True)]
        return self.ends() < np.array(bests) / 2


def arms(folder: str, pattern: str, planned: int, seeds: range, complete: bool = True) -> dict[tuple[str, ...], Arm]:
    """A campaign's arms by the groups of the pattern, which a run's name has before its seed."""
    found = defaultdict(list)
    for name, run in sorted(campaign(folder).items()):
        if run.seed in seeds:
            found[re.fullmatch(pattern + r"-s\d+", name).groups()].append(run)
    if complete:  # else pairs are of two seeds
        assert all([run.seed for run in runs] == [*seeds] for runs in found.values())
    return {groups: Arm(runs, planned) for groups, runs in found.items()}


# Statistics


@dataclass(frozen=True)
class Gap:
    """A difference of two samples: Welch's, or that of pairs."""

    mean: float
    se: float
    freedom: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.se:.3f}"

    @property
    def unsigned(self) -> str:
        """Of what is said to be higher: no plus."""
        return f"{self.mean:.3f} ± {self.se:.3f}"

    @classmethod
    def of(cls, a: np.ndarray, b: np.ndarray) -> "Gap":
        u, v = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
        freedom = (u + v) ** 2 / (u**2 / (len(a) - 1) + v**2 / (len(b) - 1))
        return cls(float(a.mean() - b.mean()), math.sqrt(u + v), float(freedom))

    @classmethod
    def paired(cls, differences: np.ndarray) -> "Gap":
        return cls(float(differences.mean()), standard_error(differences), len(differences) - 1)

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


CONCLUSIONS = ("higher", "lower", "equivalent", "inconclusive")


class Verdict(NamedTuple):
    """Which side of a difference is higher at 5 %. The ps have Holm's correction over a family of comparisons."""

    gap: Gap
    conclusion: str
    p: float
    p_equivalent: float
    family: int


def verdicts(gaps: Sequence[Gap]) -> list[Verdict]:
    found = []
    for gap, p, same in zip(gaps, holm([g.p for g in gaps]), holm([g.p_equivalent for g in gaps]), strict=True):
        direction = "higher" if gap.mean > 0 else "lower"
        conclusion = direction if p < 0.05 else "equivalent" if same < 0.05 else "inconclusive"
        found.append(Verdict(gap, conclusion, p, same, len(gaps)))
    return found


def paired(family: dict[Any, np.ndarray]) -> dict[Any, tuple[Gap, float]]:
    """Of the differences of each title, seed by seed: their mean, and p with Holm's correction over the family."""
    gaps = {title: Gap.paired(differences) for title, differences in family.items()}
    ps = holm([gap.p for gap in gaps.values()])
    return {title: (gap, p) for (title, gap), p in zip(gaps.items(), ps, strict=True)}


def holm(ps: Sequence[float]) -> list[float]:
    order = np.argsort(ps)
    steps = [min(1.0, (len(ps) - place) * ps[index]) for place, index in enumerate(order)]
    corrected = np.empty(len(ps))
    corrected[order] = np.maximum.accumulate(steps)
    return corrected.tolist()


def standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def pm(values: np.ndarray) -> str:
    return f"{values.mean():.3f} ± {standard_error(values):.3f}"


def chance(p: float) -> str:
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def times(value: float | None) -> str:
    return "?" if value is None else f"{value:.2g}"


# The pages


def filled(text: str, tables: dict[str, Callable[[], Iterable[list[str]]]]) -> str:
    """A page with the rows of its tables as they are now, below the headings that it has."""
    for name in re.findall(r"<!-- table: (.+) -->", text):
        new = "".join(f"|{'|'.join(row)}|\n" for row in tables[name]())
        text = re.sub(rf"(<!-- table: {name} -->\n.*\n.*\n)(?:\|.*\n)*", lambda block, new=new: block[1] + new, text)
    return text


def problems() -> Iterator[str]:
    from sentences import GIVEN, TABLES, sentences  # they import this file

    texts = {page: page.read_text() for page in sentences()}
    lacking = (name for name in TABLES if f"<!-- table: {name} -->" not in "".join(texts.values()))
    yield from (f"no page has the table {name}" for name in lacking)
    for page, wanted in sentences().items():
        both = (one.splitlines() for one in (texts[page], filled(texts[page], TABLES)))
        yield from difflib.unified_diff(*both, page.name, "records", n=0, lineterm="")
        fenced = re.DOTALL | re.MULTILINE
        prose = re.sub(r"^```text\n(.*?)^```", r"\1", texts[page], flags=fenced)  # what a command printed
        prose = re.sub(r"<!-- table.*?<!-- end -->|^```.*?^```", "", prose, flags=fenced)
        prose = " ".join(prose.split())
        for sentence in wanted:
            if sentence not in prose:
                yield f"{page.name} does not say: {sentence}"
            prose = prose.replace(sentence, " ")
        numbers = NUMBER.findall(prose) if page in GIVEN else []
        yield from (f"{page.name}: nothing here computes {number}" for number in numbers)


def main() -> int:
    found = list(problems())
    print(*found, sep="\n", file=sys.stderr)
    print(f"{len(found)} problems")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
