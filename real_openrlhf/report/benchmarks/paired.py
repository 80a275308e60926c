"""Compare two evaluations of the same problems with the same settings, problem by problem."""

import contextlib
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from real_openrlhf.base import ownership
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import parsed, read_bytes, write_json, write_text
from real_openrlhf.data.benchmarks import BENCHMARKS
from real_openrlhf.report.benchmarks.scores import protocol
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import bootstrap
from real_openrlhf.report.table_forms import Bold, Cell, Row, Table, to_markdown

NUMBERS, TABLE = "comparison.json", "comparison.md"
LEVEL = 95  # percent of an interval
BASELINE = "grpo"


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
class Difference:
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
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def refuse_unlike(a: Evaluated, b: Evaluated) -> None:
    """Raise `UserError` if the two evaluations differ in settings, problems or answers."""
    unlike = [
        f"{name} {a.settings.get(name)} and {b.settings.get(name)}"
        for name in sorted({*a.settings, *b.settings})
        if a.settings.get(name) != b.settings.get(name)
    ]
    if unlike:
        raise UserError(f"the two evaluations differ: {'; '.join(unlike)}. Evaluate one again, like the other")
    if a.problems.keys() != b.problems.keys():
        alone = sorted(a.problems.keys() ^ b.problems.keys())
        raise UserError(
            f"{len(alone)} problems are in one evaluation only, such as {' '.join(alone[0])}. Evaluate both on the "
            "same benchmarks"
        )
    other = [key for key, line in a.problems.items() if line["label"] != b.problems[key]["label"]]
    if other:
        raise UserError(
            f"{' '.join(other[0])} has another answer in each: the benchmark's file has changed. "
            "Evaluate one model again"
        )


def differences(a: Evaluated, b: Evaluated) -> list[Difference]:
    """The difference on each benchmark, and on their unweighted average if there are several."""
    refuse_unlike(a, b)
    found, resampled = [], []
    for benchmark in dict.fromkeys(benchmark for benchmark, _ in a.problems):
        keys = [key for key in a.problems if key[0] == benchmark]
        first, second = (np.array([side.problems[key]["pass@1"] for key in keys]) for side in (a, b))
        gaps = second - first
        means = bootstrap(gaps, np.random.default_rng([a.settings["seed"], *benchmark.encode()]))
        resampled.append(means)
        title = BENCHMARKS[benchmark].title if benchmark in BENCHMARKS else benchmark
        counts = len(keys), float(first.mean()), float(second.mean())
        found.append(Difference(title, *counts, *_interval(means), int((gaps > 0).sum()), int((gaps < 0).sum())))
    if len(found) > 1:
        sums = {name: sum(getattr(one, name) for one in found) for name in ("problems", "a", "b", "better", "worse")}
        sums |= {side: sums[side] / len(found) for side in ("a", "b")}
        low, high = _interval(np.mean(resampled, axis=0))
        found.append(Difference("Avg.", low=low, high=high, **sums))
    return found


def _interval(means: np.ndarray) -> tuple[float, float]:
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail])
    return float(low), float(high)


def table(a: Evaluated, b: Evaluated, found: list[Difference]) -> Table:
    rows: list[Row] = [
        {
            "Benchmark": one.title,
            "Problems": str(one.problems),
            f"A: {a.name}": f"{one.a:.3f}",
            f"B: {b.name}": f"{one.b:.3f}",
            "B less A": (Bold if one.clear else str)(f"{one.mean:+.3f}"),
            f"{LEVEL} % interval": f"{one.low:+.3f} to {one.high:+.3f}",
            "B better, worse": f"{one.better}, {one.worse}",
        }
        for one in found
    ]
    notes = [
        "pass@1, problem by problem. Interval: bootstrap over problems, which keeps pairs together. Bold: it leaves "
        "out 0. Of twenty such intervals over equal models one does so by chance.",
        f"{protocol(a.settings)}, seed = {a.settings['seed']}.",
    ]
    return Table("comparison", "B less A", rows, notes)


def compare(a: Path, b: Path, out: Path | None) -> str:
    """The table as Markdown; with `out` also written there, and as JSON with all digits."""
    if out:
        refuse_foreign(out)
    first, second = Evaluated.read(a), Evaluated.read(b)
    found = differences(first, second)
    said = to_markdown(table(first, second, found))
    if out:
        rows = [{**vars(one), "difference": one.mean} for one in found]
        write_json(out / NUMBERS, {"a": first.name, "b": second.name, "level": LEVEL, "rows": rows})
        write_text(out / TABLE, [said])
    return said


def refuse_foreign(out: Path) -> None:
    ours = False
    with contextlib.suppress(OSError, ValueError, TypeError):
        ours = {"a", "b", "level", "rows"} <= parsed(read_bytes(out / NUMBERS)).keys()
    ownership.refuse_foreign("--out", (out / name for name in (NUMBERS, TABLE)), ours)


def gains(comparison: Comparison) -> Table | None:
    """pass@1 of each evaluated setting minus that of GRPO, on the same problems."""
    every = {setting: evaluated for setting in comparison.settings if (evaluated := _evaluated(setting))}
    baseline = next((one for one in every if one.algo == BASELINE and not one.deviation), None)
    if baseline is None or len(every) < 2:
        return None
    rows: list[Row] = []
    notes = [
        f"pass@1 less that of {baseline.label}, each problem's mean over the runs of a setting; in brackets the "
        f"{LEVEL} % interval, a bootstrap over problems that keeps pairs together. It does not cover other seeds. "
        "Bold: the interval excludes 0.",
    ]
    for setting, evaluated in every.items():
        if setting is baseline:
            continue
        try:
            found = differences(every[baseline], evaluated)
        except UserError as error:
            notes.append(f"{setting.label} is not compared: {error}.")
            continue
        cells: dict[str, Cell] = {
            one.title: (Bold if one.clear else str)(f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})")
            for one in found
        }
        rows.append({"Method": setting.label, **cells})
    return Table("gains", f"Gain over {baseline.label}", rows, notes) if rows else None


def _evaluated(setting: Setting) -> Evaluated | None:
    """Its runs' evaluations, averaged problem by problem; None if there are none, or if they do not match."""
    runs = []
    for run in setting.counted:
        if run.evaluation is not None and (run.path / "eval" / "per_problem.jsonl").exists():
            try:
                runs.append(Evaluated.read(run.path / "eval"))
                refuse_unlike(runs[0], runs[-1])
            except UserError:
                return None
    if not runs:
        return None
    means = {key: float(np.mean([run.problems[key]["pass@1"] for run in runs])) for key in runs[0].problems}
    return replace(runs[0], problems={key: {**runs[0].problems[key], "pass@1": mean} for key, mean in means.items()})
