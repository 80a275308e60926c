"""real-openrlhf report: run folders in; figures, tables and one HTML page out."""

import argparse
import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from real_openrlhf.errors import UserError
from real_openrlhf.parsing import flag_name

if TYPE_CHECKING:
    from real_openrlhf.report.drawing import Picture
    from real_openrlhf.report.read_runs import Run
    from real_openrlhf.report.settings import Comparison
    from real_openrlhf.report.tables import Table


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN_DIR",
        help="run folders, TensorBoard logs of stock OpenRLHF, or a folder of such",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where figures, tables and page go")
    parser.add_argument(
        "--map",
        nargs=2,
        metavar="FLAG",
        help="two flags that the runs vary, like actor.adam.lr train.batch_size: heat maps of where each method works "
        "and where it breaks, a table of the cells, and what says a collapse beforehand, in place of curves",
    )


def run(args: argparse.Namespace) -> int:
    from real_openrlhf.report.read_runs import read_runs
    from real_openrlhf.runs.run_folder import record_ending

    runs, skipped = read_runs(args.runs)
    if not runs:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in skipped)
        raise UserError(f"no run to report on ({reasons}). Name folders made by real-openrlhf train.")
    for unseen in filter(None, (record_ending(run.path) for run in runs if run.meta.get("unseen"))):
        print(unseen)
    for path, reason in skipped:
        print(f"skipped {path}: {reason}")
    page = write(runs, skipped, args.out, args.map)
    print(f"{len(runs)} run{'s' * (len(runs) != 1)} reported, {len(skipped)} skipped")
    print(page)
    return 0


def write(
    runs: "Sequence[Run]", skipped: Sequence[tuple[Path, str]], out: Path, across: Sequence[str] | None = None
) -> Path:
    """Everything under `out`: index.html, figures/ and tables/. `across` are the two flags of a map."""
    from real_openrlhf.report import figures, page, tables
    from real_openrlhf.report.settings import compare
    from real_openrlhf.report.weights import proposition_5_1

    try:
        for folder in ("figures", "tables"):
            (out / folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot write to {out}: {problem.strerror}. Choose another --out.") from problem
    flags = [flag_name(text) for text in across or ()]
    comparisons = compare(runs, flags)
    sections = []
    for comparison in comparisons:
        section = page.Section(comparison, _map(comparison, flags) if flags else _curves(comparison))
        slug = _slug(comparison.name)
        same = [other for other in comparisons if _slug(other.name) == slug]
        slug += f"-{same.index(comparison) + 1}" if len(same) > 1 or not slug else ""
        prefix = f"{slug.lstrip('-.') or 'task'}-" if len(comparisons) > 1 else ""
        for part in section.parts:
            _save(replace(part, name=prefix + part.name), out)
        sections.append(section)
    gradient, benchmarks = figures.gradient_magnitude(), tables.benchmarks(comparisons)
    for part in (gradient, benchmarks):
        _save(part, out)
    index = out / "index.html"
    index.write_text(page.render(sections, gradient, proposition_5_1(), benchmarks, skipped))
    return index


def _curves(comparison: "Comparison") -> "list[Picture | Table]":
    from real_openrlhf.report import figures, pairs, tables

    parts: list[Picture | Table | None] = [
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


def _map(comparison: "Comparison", flags: Sequence[str]) -> "list[Picture | Table]":
    from real_openrlhf.report import collapse, maps, pairs

    others = pairs.pairs_in_cells(comparison, flags), collapse.table(comparison.runs)
    return [maps.heat_maps(comparison, flags), maps.cells(comparison, flags), *filter(None, others)]


def _save(part: "Picture | Table", out: Path) -> None:
    """A table in its three forms; a figure with the numbers that it was drawn from."""
    from real_openrlhf.report import drawing, tables

    if isinstance(part, tables.Table):
        for suffix, form in (("md", tables.to_markdown), ("tex", tables.to_latex), ("csv", tables.to_csv)):
            (out / "tables" / f"{part.name}.{suffix}").write_text(form(part))
        return
    drawing.save(part, out / "figures")
    with open(out / "figures" / f"{part.name}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["curve", "metric", part.axis, "runs", "mean", "se"])
        writer.writerows(part.rows)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.")[:60]
