"""Scores on benchmarks, which `real-openrlhf eval` wrote: beside published numbers, and one model less another."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from real_openrlhf.base import ownership
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import write_json, write_text
from real_openrlhf.data.benchmarks import BENCHMARKS, average_title
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import Estimate, bootstrap, clear_winner, estimate
from real_openrlhf.report.table_forms import BLOCK, BOLD_NOTE, Bold, Row, Table, to_markdown

# Numbers measured by others, each with its source: printed beside ours, never mixed with them. One run each, without a
# standard error, so none is ever set in bold as a win. Of DisCO's own tables only the averages are here.
PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
AVERAGED = tuple(PUBLISHED["average_of"])  # the benchmarks of the paper's average
PROTOCOL = {"k": "k", "temperature": "T", "top_p": "top_p", "max_new_tokens": "max tokens", "grader": "grader"}
PROTOCOL |= {"think": "closed thinking", "limit": "only the first", "allow": "also counted"}


def published(mean: float | None, digits: int = 3) -> Estimate | None:
    return None if mean is None else Estimate(mean, math.nan, 1, digits)


def benchmark_scores(run: Run) -> dict[str, Estimate]:
    """pass@1 of each benchmark, with the standard error over problems."""
    scores = (run.evaluation or {}).get("benchmarks")
    estimates = {}
    for name, score in scores.items() if isinstance(scores, dict) else ():
        if isinstance(score, dict) and isinstance(score.get("pass@1"), int | float):
            error = score.get("standard_error")
            error = float(error) if isinstance(error, int | float) else math.nan
            estimates[name] = Estimate(float(score["pass@1"]), error, 1)
    return estimates


def protocol(settings: object) -> str:
    """The settings that two scores must share to be compared."""
    if not isinstance(settings, dict):
        return "protocol unknown"
    return ", ".join(f"{words} = {settings[key]}" for key, words in PROTOCOL.items() if settings.get(key) is not None)


def benchmark_estimates(setting: Setting) -> dict[str, Estimate | None]:
    """Mean over runs with the standard error over runs; a single run keeps its error over problems.

    `average` is over the paper's benchmarks, and needs a run with all of them.
    """
    found: dict[str, list[Estimate]] = defaultdict(list)
    for scores in map(benchmark_scores, setting.counted):
        if all(name in scores for name in AVERAGED):
            parts = [scores[name] for name in AVERAGED]
            error = math.sqrt(sum(part.se**2 for part in parts)) / len(parts)
            scores["average"] = Estimate(sum(part.mean for part in parts) / len(parts), error, 1)
        for name, score in scores.items():
            found[name].append(score)
    return {name: here[0] if len(here) == 1 else estimate(one.mean for one in here) for name, here in found.items()}


def benchmarks(comparisons: Sequence[Comparison]) -> Table:
    """Our scores, a block for each comparison, then blocks of published scores."""
    every = {setting: benchmark_estimates(setting) for task in comparisons for setting in task.settings}
    extra = sorted({name for found in every.values() for name in found} - {*BENCHMARKS, "average"})
    names = [*BENCHMARKS, "average", *extra]
    notes = [
        "pass@1, mean over samples and problems. Ours: ± is one standard error over runs, for a single run over "
        "problems. Published numbers: one run each, no standard error, so none is marked as a win.",
        BOLD_NOTE + " Only settings evaluated in the same way compete.",
    ]
    rows: list[Row] = []

    def add(block: str, label: str, cells: Mapping[str, Estimate | None]) -> None:
        rows.append({BLOCK: block, "Method": label, **{_title(name): cells.get(name) for name in names}})

    for comparison in comparisons:
        here = {setting: found for setting in comparison.settings if (found := every[setting])}
        if silent := [setting.label for setting in comparison.settings if setting not in here]:
            notes.append(f"{comparison.name}: not evaluated: {'; '.join(silent)}.")
        scored = [[run.evaluation or {} for run in one.counted if benchmark_scores(run)] for one in here]
        ways = [" / ".join(sorted({protocol(run.get("settings")) for run in runs})) for runs in scored]
        alike = len(set(ways)) == 1
        if alike:
            notes.append(f"{comparison.name}: {ways[0]}.")
        best = {name: clear_winner([found.get(name) for found in here.values()]) for name in names if alike}
        for place, (setting, found) in enumerate(here.items()):
            runs = len(scored[place])
            label = f"{setting.label} ({runs} run{'s' * (runs != 1)})" + f" [{ways[place]}]" * (not alike)
            cells = {name: replace(one, bold=best.get(name) == place) for name, one in found.items() if one}
            add(f"Ours: {comparison.name}", label, cells)
    for block in PUBLISHED["benchmarks"]:
        for label, numbers in block["rows"].items():
            add(block["title"], label, {name: published(number) for name, number in numbers.items()})
        notes.append(f"{block['title']}: {block['source']}.")
    return Table("benchmarks", "Benchmarks: pass@1", rows, notes)


def _title(name: str) -> str:
    return BENCHMARKS[name].title if name in BENCHMARKS else "Avg." if name == "average" else name


# Two evaluations of the same problems with the same settings, problem by problem

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
    found, resampled = [], []
    for benchmark in dict.fromkeys(benchmark for benchmark, _ in a.problems):
        keys = [key for key in a.problems if key[0] == benchmark]
        first, second = (np.array([side.problems[key]["pass@1"] for key in keys]) for side in (a, b))
        gaps = second - first
        resampled.append(bootstrap(gaps, np.random.default_rng([a.settings["seed"], *benchmark.encode()])))
        counts = int((gaps > 0).sum()), int((gaps < 0).sum())
        means = float(first.mean()), float(second.mean())
        found.append(PairedGap(_title(benchmark), len(keys), *means, *_interval(resampled[-1]), *counts))
    if len(found) > 1:
        problems, better, worse = (sum(getattr(one, of) for one in found) for of in ("problems", "better", "worse"))
        means = sum(one.a for one in found) / len(found), sum(one.b for one in found) / len(found)
        title = average_title(benchmark for benchmark, _ in a.problems)
        found.append(PairedGap(title, problems, *means, *_interval(np.mean(resampled, axis=0)), better, worse))
    return found


def _interval(means: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(means, [(100 - LEVEL) / 2, (100 + LEVEL) / 2])
    return float(low), float(high)


def compare_two(a: Path, b: Path, out: Path | None) -> str:
    """The table as Markdown; with `out` also written there, and as JSON with all digits."""
    if out:
        ours = ownership.has_keys(out / NUMBERS, "a", "b", "level", "rows")
        ownership.refuse_foreign("--out", (out / name for name in (NUMBERS, TABLE)), ours)
    first, second = Evaluated.read(a), Evaluated.read(b)
    found = paired_gaps(first, second)
    rows: list[Row] = [
        {
            "Benchmark": one.title,
            "Problems": str(one.problems),
            f"A: {first.name}": f"{one.a:.3f}",
            f"B: {second.name}": f"{one.b:.3f}",
            "B less A": (Bold if one.clear else str)(f"{one.mean:+.3f}"),
            f"{LEVEL} % interval": f"{one.low:+.3f} to {one.high:+.3f}",
            "B better, worse": f"{one.better}, {one.worse}",
        }
        for one in found
    ]
    notes = [
        "pass@1, problem by problem. Interval: bootstrap over problems, which keeps pairs together. Bold: it leaves "
        "out 0. Of twenty such intervals over equal models one does so by chance.",
        f"{protocol(first.settings)}, seed = {first.settings['seed']}.",
    ]
    said = to_markdown(Table("comparison", "B less A", rows, notes))
    if out:
        numbers = [{**vars(one), "difference": one.mean} for one in found]
        write_json(out / NUMBERS, {"a": first.name, "b": second.name, "level": LEVEL, "rows": numbers})
        write_text(out / TABLE, [said])
    return said


def gains(comparison: Comparison) -> Table | None:
    """pass@1 of each evaluated setting minus that of GRPO, on the same problems."""
    every = {setting: evaluated for setting in comparison.settings if (evaluated := _evaluated(setting))}
    baseline = next((one for one in every if one.algo == BASELINE and not one.deviation), None)
    if baseline is None:
        return None
    rows: list[Row] = []
    notes = [
        f"pass@1 less that of {baseline.label}, each problem's mean over the runs of a setting; in brackets the "
        f"{LEVEL} % interval, a bootstrap over problems that keeps pairs together. It does not cover other seeds. "
        "Bold: the interval excludes 0.",
    ]
    first = every.pop(baseline)
    for setting, evaluated in every.items():
        try:
            found = paired_gaps(first, evaluated)
        except UserError as error:
            notes.append(f"{setting.label} is not compared: {error}.")
            continue
        cells: Row = {
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
