"""Everything that a report leaves: index.html, figures/ and tables/."""

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from real_openrlhf.errors import UserError
from real_openrlhf.parsing import flag_name
from real_openrlhf.report import drawing, figures, maps, page, pairs, tables
from real_openrlhf.report.drawing import Picture
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import Comparison, compare
from real_openrlhf.report.table_forms import Table, to_csv, to_latex, to_markdown
from real_openrlhf.report.weights import proposition_5_1


def write(
    runs: Sequence[Run], skipped: Sequence[tuple[Path, str]], out: Path, across: Sequence[str] | None = None
) -> Path:
    """The report under `out`; `across` are the two flags of a map."""
    try:
        for folder in ("figures", "tables"):
            (out / folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot write to {out}: {problem.strerror}. Choose another --out.") from problem
    flags = [flag_name(text) for text in across or ()]
    comparisons = compare(runs, flags)
    slugs = [re.sub(r"[^a-z0-9.]+", "-", one.name.lower()).strip("-.")[:60] for one in comparisons]
    sections = []
    for number, (comparison, slug) in enumerate(zip(comparisons, slugs, strict=True)):
        section = page.Section(comparison, _map(comparison, flags) if flags else _curves(comparison))
        several = f"-{slugs[: number + 1].count(slug)}" if slugs.count(slug) > 1 or not slug else ""
        prefix = f"{slug or 'task'}{several}-" if len(comparisons) > 1 else ""
        for part in section.parts:
            _save(replace(part, name=prefix + part.name), out)
        sections.append(section)
    gradient, benchmarks = figures.gradient_magnitude(), tables.benchmarks(comparisons)
    for part in (gradient, benchmarks):
        _save(part, out)
    index = out / "index.html"
    index.write_text(page.render(sections, gradient, proposition_5_1(), benchmarks, skipped))
    return index


def _curves(comparison: Comparison) -> list[Picture | Table]:
    parts = [
        tables.results(comparison),
        pairs.pairs(comparison),
        figures.dynamics(comparison),
        figures.ablation(comparison),
        tables.ablations(comparison),
        figures.knobs(comparison),
        figures.distributions(comparison),
        tables.ratios(comparison),
    ]
    return [part for part in parts if part is not None]


def _map(comparison: Comparison, flags: Sequence[str]) -> list[Picture | Table]:
    differences = pairs.pairs_in_cells(comparison, flags)
    return [maps.heat_maps(comparison, flags), maps.cells(comparison, flags), *([differences] if differences else [])]


def _save(part: Picture | Table, out: Path) -> None:
    """A table in its three forms; a figure with the numbers that it was drawn from."""
    if isinstance(part, Table):
        for suffix, form in (("md", to_markdown), ("tex", to_latex), ("csv", to_csv)):
            (out / "tables" / f"{part.name}.{suffix}").write_text(form(part))
        return
    drawing.save(part, out / "figures")
    with open(out / "figures" / f"{part.name}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["curve", "metric", part.axis, "runs", "mean", "se"])
        writer.writerows(part.rows)
