"""Two evaluations of the same problems with the same settings, problem by problem: `real-openrlhf eval --compare`."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from real_openrlhf.base.errors import UserError
from real_openrlhf.data.benchmarks import BENCHMARKS, average_title
from real_openrlhf.report.statistics import bootstrap
from real_openrlhf.report.table_forms import Bold, Row, Table, to_markdown

LEVEL = 95  # percent of an interval
PROTOCOL = {"k": "k", "temperature": "T", "top_p": "top_p", "max_new_tokens": "max tokens", "grader": "grader"}
PROTOCOL |= {"think": "closed thinking", "limit": "only the first", "allow": "also counted"}


def protocol(settings: object) -> str:
    """The settings that two scores must share to be compared."""
    if not isinstance(settings, dict):
        return "protocol unknown"
    return ", ".join(f"{words} = {settings[key]}" for key, words in PROTOCOL.items() if settings.get(key) is not None)


def title_of(name: str) -> str:
    return BENCHMARKS[name].title if name in BENCHMARKS else "Avg." if name == "average" else name


@dataclass(frozen=True)
class Evaluated:
    """An evaluation, read from a folder that `real-openrlhf eval --out` wrote."""

    name: str
    settings: dict
    problems: dict[tuple[str, str], dict]  # (benchmark, id) -> its line of per_problem.jsonl

    @classmethod
    def read(cls, folder: Path) -> "Evaluated":
        try:
            results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
            lines = (folder / "per_problem.jsonl").read_text(encoding="utf-8").splitlines()
            problems = {(line["benchmark"], line["id"]): line for line in map(json.loads, lines)}
            return cls(results["name"], results["settings"], problems)
        except FileNotFoundError as error:
            raise UserError(
                f"{folder} has no {Path(error.filename).name}. Name a folder that real-openrlhf eval --out has filled"
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{folder} has no readable evaluation: {error!r}. Evaluate the model again") from error


@dataclass(frozen=True)
class PairedGap:
    """B's pass@1 minus A's, mean over problems, with a bootstrap interval over problems."""

    title: str
    problems: int
    a: float
    b: float
    low: float
    high: float
    better: int  # problems on which B is right more often
    worse: int

    @property
    def mean(self) -> float:
        return self.b - self.a

    @property
    def clear(self) -> bool:
        """Whether the interval excludes 0 as it is printed: a bound of 1e-17 is a rounding error."""
        return round(self.low, 3) > 0 or round(self.high, 3) < 0


def refuse_unlike(a: Evaluated, b: Evaluated) -> None:
    """Raise `UserError` if the two evaluations differ in settings, problems or answers."""
    unlike = [
        f"{name} {a.settings.get(name)} and {b.settings.get(name)}"
        for name in sorted({*a.settings, *b.settings})
        if a.settings.get(name) != b.settings.get(name)
    ]
    if unlike:
        raise UserError(f"the two evaluations differ: {'; '.join(unlike)}. Evaluate one again, like the other")
    if alone := sorted(a.problems.keys() ^ b.problems.keys()):
        raise UserError(
            f"{len(alone)} problems are in one evaluation only, such as {' '.join(alone[0])}. Evaluate both on the "
            "same benchmarks"
        )
    if other := [key for key, line in a.problems.items() if line["label"] != b.problems[key]["label"]]:
        raise UserError(
            f"{' '.join(other[0])} has another answer in each: the benchmark's file has changed. "
            "Evaluate one model again"
        )


def paired_gaps(a: Evaluated, b: Evaluated) -> list[PairedGap]:
    """The difference on each benchmark, and on their unweighted average if there are several."""
    refuse_unlike(a, b)
    gaps, resampled = [], []
    for benchmark in dict.fromkeys(benchmark for benchmark, _ in a.problems):
        keys = [key for key in a.problems if key[0] == benchmark]
        first, second = (np.array([side.problems[key]["pass@1"] for key in keys]) for side in (a, b))
        gains = second - first
        resampled.append(bootstrap(gains, np.random.default_rng([a.settings["seed"], *benchmark.encode()])))
        counts = int((gains > 0).sum()), int((gains < 0).sum())
        means = float(first.mean()), float(second.mean())
        gaps.append(PairedGap(title_of(benchmark), len(keys), *means, *_interval(resampled[-1]), *counts))
    if len(gaps) > 1:
        problems, better, worse = (sum(getattr(gap, key) for gap in gaps) for key in ("problems", "better", "worse"))
        means = sum(gap.a for gap in gaps) / len(gaps), sum(gap.b for gap in gaps) / len(gaps)
        title = average_title(benchmark for benchmark, _ in a.problems)
        gaps.append(PairedGap(title, problems, *means, *_interval(np.mean(resampled, axis=0)), better, worse))
    return gaps


def _interval(means: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(means, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def compare_two(a: Path, b: Path) -> str:
    """The table as Markdown."""
    first, second = Evaluated.read(a), Evaluated.read(b)
    rows: list[Row] = [
        {
            "Benchmark": gap.title,
            "Problems": str(gap.problems),
            f"A: {first.name}": f"{gap.a:.3f}",
            f"B: {second.name}": f"{gap.b:.3f}",
            "B less A": (Bold if gap.clear else str)(f"{gap.mean:+.3f}"),
            f"{LEVEL} % interval": f"{gap.low:+.3f} to {gap.high:+.3f}",
            "B better, worse": f"{gap.better}, {gap.worse}",
        }
        for gap in paired_gaps(first, second)
    ]
    notes = [
        "pass@1, problem by problem. Interval: bootstrap over problems, which keeps pairs together. Bold: it leaves "
        "out 0. Of twenty such intervals over equal models one does so by chance.",
        f"{protocol(first.settings)}, seed = {first.settings['seed']}.",
    ]
    return to_markdown(Table("comparison", "B less A", rows, notes))
