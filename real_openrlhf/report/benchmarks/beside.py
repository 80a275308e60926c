"""Our scores with the paper's beside them, and the gain of each method over GRPO, problem by problem."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from real_openrlhf.base.errors import UserError
from real_openrlhf.data.benchmarks import BENCHMARKS
from real_openrlhf.report.benchmarks.paired import LEVEL, Difference, Evaluated, differences, refuse_unlike
from real_openrlhf.report.benchmarks.scores import PUBLISHED, benchmark_estimates
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.table_forms import Cell, Row, Table, value, words

BASELINE = "grpo"


def beside_paper(comparison: Comparison) -> Table | None:
    """A row for each of our settings that the paper has too, each benchmark twice: ours, then the paper's."""
    recipe = comparison.runs[0].meta.get("recipe")
    blocks = [block for block in PUBLISHED["benchmarks"] if recipe in block.get("recipes", ())]
    # a row of the main table has all benchmarks, and wins over the same method's among the ablations
    paper = {
        block.get("ours", {}).get(name, name.rstrip("*")): row
        for block in reversed(blocks)
        for name, row in block["rows"].items()
    }
    found = [(setting, benchmark_estimates(setting)) for setting in comparison.settings]
    names = [name for name in (*BENCHMARKS, "average") if any(name in scores for _, scores in found)]
    if not blocks or not names:
        return None
    columns, rows = ["Method"], []
    for name in names:
        title = BENCHMARKS[name].title if name in BENCHMARKS else "Avg."
        columns += [title, f"{title}, paper"]
    for setting, scores in found:
        published = dict(zip((*BENCHMARKS, "average"), paper.get(setting.label, ()), strict=False))
        cells = [cell for name in names for cell in (Cell(number=scores.get(name)), value(published.get(name)))]
        rows.append(Row([words(setting.label), *cells]))
    notes = [
        "pass@1. Ours: ± is one standard error over runs, for a single run over problems. The paper's: one run each, "
        f"without a standard error. {'; '.join(block['source'] for block in blocks)}."
    ]
    return Table("beside-paper", "Benchmarks: ours, and the paper's beside them", columns, [("", rows)], notes)


def gains(comparison: Comparison) -> Table | None:
    """Each evaluated setting less GRPO, on the same problems."""
    every = {setting: evaluated for setting in comparison.settings if (evaluated := _evaluated(setting))}
    baseline = next((one for one in every if one.algo == BASELINE and not one.deviation), None)
    if baseline is None or len(every) < 2:
        return None
    found: dict[Setting, Sequence[Difference]] = {}
    notes = [
        f"pass@1 less that of {baseline.label}, each problem's mean over the runs of a setting; in brackets the "
        f"{LEVEL} % interval, a bootstrap over problems that keeps pairs together. It does not cover other seeds. "
        "Bold: it leaves out 0.",
    ]
    for setting, evaluated in every.items():
        if setting is not baseline:
            try:
                found[setting] = differences(every[baseline], evaluated)
            except UserError as error:
                notes.append(f"{setting.label} is not compared: {error}.")
    if not found:
        return None
    titles = [one.title for one in next(iter(found.values()))]
    rows = []
    for setting, ones in found.items():
        cells = [Cell(f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})", bold=one.clear) for one in ones]
        rows.append(Row([words(setting.label), *cells]))
    return Table("gains", f"Gain over {baseline.label}", ["Method", *titles], [("", rows)], notes)


def _evaluated(setting: Setting) -> Evaluated | None:
    """The mean over its runs, problem by problem; None if no run has the files of an evaluation."""
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
