"""The table of benchmark scores, which `real-openrlhf eval` wrote, beside published numbers."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from real_openrlhf.data.benchmarks import BENCHMARKS
from real_openrlhf.report.paired import protocol, title_of
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.statistics import Estimate, estimate
from real_openrlhf.report.table_forms import BLOCK, SETTING, Row, Table
from real_openrlhf.report.task_runs import MethodRuns, TaskRuns

# Numbers measured by others, each with its source: printed beside ours, never mixed with them. One run each, without a
# standard error. Of DisCO's own tables only the averages are here.
PUBLISHED = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
AVERAGED = tuple(PUBLISHED["average_of"])  # the benchmarks of the paper's average


def published(mean: float | None, digits: int = 3) -> Estimate | None:
    return None if mean is None else Estimate(mean, math.nan, digits)


def benchmark_scores(run: Run) -> dict[str, Estimate]:
    """pass@1 of each benchmark, with the standard error over problems."""
    scores = (run.evaluation or {}).get("benchmarks", {}).items()
    return {name: Estimate(score["pass@1"], score.get("standard_error", math.nan)) for name, score in scores}


def benchmark_estimates(setting: MethodRuns) -> dict[str, Estimate | None]:
    """Mean over runs with the standard error over runs; a single run keeps its error over problems.

    `average` is over the paper's benchmarks, and needs a run with all of them.
    """
    estimates: dict[str, list[Estimate]] = defaultdict(list)
    for scores in map(benchmark_scores, setting.counted):
        if all(name in scores for name in AVERAGED):
            parts = [scores[name] for name in AVERAGED]
            error = math.sqrt(sum(part.se**2 for part in parts)) / len(parts)
            scores["average"] = Estimate(sum(part.mean for part in parts) / len(parts), error)
        for name, score in scores.items():
            estimates[name].append(score)
    several = {name: estimate(score.mean for score in known) for name, known in estimates.items() if len(known) > 1}
    return {name: several.get(name, known[0]) for name, known in estimates.items()}


def benchmarks(tasks: Sequence[TaskRuns]) -> Table | None:
    """Our scores, a block for each task and protocol, then published scores; None if no run was evaluated."""
    scores = {setting: benchmark_estimates(setting) for task in tasks for setting in task.methods}
    if not any(scores.values()):
        return None
    extra = sorted({name for known in scores.values() for name in known} - {*BENCHMARKS, "average"})
    names = [*BENCHMARKS, "average", *extra]
    rows: list[Row] = []

    def add(block: str, label: str, cells: Mapping[str, Estimate | None]) -> None:
        rows.append({BLOCK: block, SETTING: label, **{title_of(name): cells.get(name) for name in names}})

    notes = [
        "Benchmarks: pass@1, mean over samples and problems; ± of a single run is one standard error over problems. "
        "Published numbers are of one run each."
    ]
    for task in tasks:
        for setting in filter(scores.get, task.methods):
            evaluated = [run for run in setting.counted if benchmark_scores(run)]
            protocols = sorted({protocol((run.evaluation or {}).get("settings")) for run in evaluated})
            label = f"{setting.label} ({len(evaluated)} run{'s' * (len(evaluated) != 1)})"
            add(f"Ours: {task.name}, {' / '.join(protocols)}", label, scores[setting])
    for block in PUBLISHED["benchmarks"]:
        for label, numbers in block["rows"].items():
            add(block["title"], label, {name: published(number) for name, number in numbers.items()})
        notes.append(f"{block['title']}: {block['source']}.")
    return Table("benchmarks", "Benchmarks: pass@1", rows, notes)
