"""Tables of our scores, which `real-openrlhf eval` wrote, with standard errors, and of published scores."""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from real_openrlhf.data.benchmarks import BENCHMARKS
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import Estimate, clear_winner, estimate
from real_openrlhf.report.table_forms import BLOCK, BOLD_NOTE, Row, Table

# Numbers measured by others, each with its source: printed beside ours, never mixed with them. One run each, without a
# standard error, so none is ever set in bold as a win. Of DisCO's own tables only the averages are here.
PUBLISHED = json.loads((Path(__file__).parents[1] / "published.json").read_text(encoding="utf-8"))
AVERAGED = tuple(PUBLISHED["average_of"])  # the benchmarks of the paper's average, and of ours beside it


def published(mean: float | None, digits: int = 3) -> Estimate | None:
    return None if mean is None else Estimate(mean, math.nan, 1, digits)


def benchmark_scores(run: Run) -> dict[str, Estimate]:
    """pass@1 of each benchmark, which `real-openrlhf eval` wrote, with the standard error over problems."""
    scores = (run.evaluation or {}).get("benchmarks")
    estimates = {}
    for name, score in scores.items() if isinstance(scores, dict) else ():
        if isinstance(score, dict) and isinstance(score.get("pass@1"), int | float):
            error = score.get("standard_error")
            error = float(error) if isinstance(error, int | float) else math.nan
            estimates[name] = Estimate(float(score["pass@1"]), error, 1)
    return estimates


PROTOCOL = {"k": "k", "temperature": "T", "top_p": "top_p", "max_new_tokens": "max tokens", "grader": "grader"}
PROTOCOL |= {"think": "closed thinking", "limit": "only the first", "allow": "also counted"}


def protocol(settings: object) -> str:
    """The settings that two scores must share to be compared."""
    if not isinstance(settings, dict):
        return "protocol unknown"
    return ", ".join(f"{words} = {settings[key]}" for key, words in PROTOCOL.items() if settings.get(key) is not None)


def benchmark_estimates(setting: Setting) -> dict[str, Estimate | None]:
    """Mean over runs with the standard error over runs; a single run keeps its error over problems.

    `average` is over the paper's benchmarks, and needs a run with all of them.
    """
    runs = [scores for run in setting.counted if (scores := benchmark_scores(run))]
    for scores in runs:
        if all(name in scores for name in AVERAGED):
            parts = [scores[name] for name in AVERAGED]
            error = math.sqrt(sum(part.se**2 for part in parts)) / len(parts)
            scores["average"] = Estimate(sum(part.mean for part in parts) / len(parts), error, 1)
    found: dict[str, list[Estimate]] = defaultdict(list)
    for scores in runs:
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


def beside_paper(comparison: Comparison) -> Table | None:
    """A row for each of our settings, two columns for each benchmark: our score, then the paper's."""
    recipe = comparison.runs[0].meta.get("recipe")
    blocks = [block for block in PUBLISHED["benchmarks"] if recipe in block.get("recipes", ())]
    # a method's row in the main table has all benchmarks, so it replaces its row in the ablation table
    paper = {
        block.get("ours", {}).get(name, name.rstrip("*")): row
        for block in reversed(blocks)
        for name, row in block["rows"].items()
    }
    found = [(setting, benchmark_estimates(setting)) for setting in comparison.settings]
    names = [name for name in (*BENCHMARKS, "average") if any(name in scores for _, scores in found)]
    if not blocks or not names:
        return None
    rows = []
    for setting, scores in found:
        row: Row = {"Method": setting.label}
        for name in names:
            row[_title(name)] = scores.get(name)
            if name in (*AVERAGED, "average"):
                row[f"{_title(name)}, paper"] = published(paper.get(setting.label, {}).get(name))
        rows.append(row)
    notes = [
        "pass@1. Ours: ± is one standard error over runs, for a single run over problems. The paper's: one run each, "
        f"without a standard error. {'; '.join(block['source'] for block in blocks)}."
    ]
    return Table("beside-paper", "Benchmarks: ours, and the paper's beside them", rows, notes)
