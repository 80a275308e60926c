"""real-openrlhf report: run folders in; figures, tables and one HTML page out."""

import argparse
import csv
import re
from collections.abc import Sequence
from pathlib import Path

from real_openrlhf.errors import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN_DIR",
        help="run folders, TensorBoard logs of stock OpenRLHF, or a folder of such",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="where figures, tables and page go")


def run(args: argparse.Namespace) -> int:
    from real_openrlhf.report.runs import read_runs

    runs, skipped = read_runs(args.runs)
    if not runs:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in skipped)
        raise UserError(f"no run to report on ({reasons}). Name folders made by real-openrlhf train.")
    for path, reason in skipped:
        print(f"skipped {path}: {reason}")
    page = write(runs, skipped, args.out)
    print(f"{len(runs)} run{'s' * (len(runs) != 1)} reported, {len(skipped)} skipped")
    print(page)
    return 0


def write(runs: Sequence, skipped: Sequence[tuple[Path, str]], out: Path) -> Path:
    """Everything under `out`: index.html, figures/ and tables/."""
    from real_openrlhf.report import figures, page, tables
    from real_openrlhf.report.settings import compare
    from real_openrlhf.report.weights import proposition_5_1

    try:
        for folder in ("figures", "tables"):
            (out / folder).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot write to {out}: {problem.strerror}. Choose another --out.") from problem
    comparisons = compare(runs)
    sections = []
    for comparison in comparisons:
        makers = (figures.dynamics, figures.ablation, figures.knobs, figures.distributions)
        pictures = [picture for make in makers if (picture := make(comparison)) is not None]
        made = [tables.results(comparison), tables.ablations(comparison), tables.ratios(comparison)]
        section = page.Section(comparison, pictures, [table for table in made if table is not None])
        prefix = f"{_slug(comparison.name)}-" if len(comparisons) > 1 else ""
        for picture in section.pictures:
            _save_picture(picture, out / "figures", prefix + picture.name)
        for table in section.tables:
            _save_table(table, out / "tables", prefix + table.name)
        sections.append(section)
    gradient, benchmarks = figures.gradient_magnitude(), tables.benchmarks(comparisons)
    _save_picture(gradient, out / "figures", gradient.name)
    _save_table(benchmarks, out / "tables", benchmarks.name)
    index = out / "index.html"
    index.write_text(page.render(sections, gradient, proposition_5_1(), benchmarks, skipped))
    return index


def _save_picture(picture, folder: Path, stem: str) -> None:
    """The figure, and the numbers it was drawn from."""
    from real_openrlhf.report.figures import save

    save(picture, folder, stem)
    with open(folder / f"{stem}.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["curve", "metric", picture.axis, "runs", "mean", "se"])
        writer.writerows(picture.rows)


def _save_table(table, folder: Path, stem: str) -> None:
    from real_openrlhf.report import tables

    for suffix, form in (("md", tables.to_markdown), ("tex", tables.to_latex), ("csv", tables.to_csv)):
        (folder / f"{stem}.{suffix}").write_text(form(table))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
