"""Everything measured in README.md and docs/ comes from the runs in this folder, by this command:

python examples/results/refresh.py            # what the pages show of the runs' reports, and the tables in the pages
python examples/results/refresh.py --check    # changes nothing; exit 1 if a page shows something else
"""

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from real_openrlhf.report import collapse, maps, pairs, tables
from real_openrlhf.report.command import write
from real_openrlhf.report.read_runs import Run, read_runs
from real_openrlhf.report.settings import Comparison, compare

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FIGURE_ONE = ROOT / "docs" / "images" / "gradient_magnitude.png"  # needs no runs
# The runs of each report: `knobs` are changes to the REAL runs of `mixed` with the same seeds.
REPORTS = {
    "mixed": ["mixed/runs"],
    "knobs": ["knobs/runs", *(f"mixed/runs/real-s{seed}" for seed in (1, 2, 3))],
    "hard": ["hard/runs"],
    "more": ["more/runs"],
    "deal": ["deal/runs"],
    "map": ["map/runs"],
    "tune": ["tune/runs"],
    "tune-hard": ["tune-hard/runs"],
    "tune-sums": ["tune-sums/runs"],
    "stale": ["stale/runs"],
}
ACROSS = {  # the flags of a map
    "map": ("--actor.adam.lr", "--train.batch_size"),
    "stale": ("--actor.adam.lr", "--train.async_queue_size"),
}
# `columns 1,2,5` takes these of the report's table; without it a page shows all.
BLOCK = re.compile(r"(<!-- table: (?P<path>\S+)(?: columns (?P<columns>[\d,]+))? -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        refresh()
    wrong = list(problems())
    for problem in wrong:
        print(f"{problem}: run {Path(__file__).name}", file=sys.stderr)
    return int(bool(wrong))


def refresh() -> None:
    from real_openrlhf.report import drawing, figures

    for name in REPORTS:
        shutil.rmtree(HERE / name / "report", ignore_errors=True)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder)
            write(runs_of(name), [], report, ACROSS.get(name))
            for file in shown(name):
                target = HERE / name / "report" / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(report / file, target)
    drawing.save_as(figures.gradient_magnitude(), FIGURE_ONE)
    for page in PAGES:
        page.write_text(filled(page))


def problems() -> Iterator[str]:
    for name in REPORTS:
        report, files = HERE / name / "report", shown(name)
        there = {str(path.relative_to(report)) for path in report.rglob("*.*")}
        yield from (f"{report / file} is shown by a page and missing" for file in files - there)
        yield from (f"{report / file} is shown by no page" for file in there - files)
        (comparison,) = compare(runs_of(name), ACROSS.get(name, ()))
        for file in there:
            if file.endswith(".md") and (report / file).read_text() != table(
                Path(file).stem, comparison, ACROSS.get(name, ())
            ):
                yield f"{report / file} is not what the runs say"
    yield from (f"{page} is not what {HERE} says" for page in PAGES if page.read_text() != filled(page))


def runs_of(name: str) -> list[Run]:
    runs, skipped = read_runs([HERE / folder for folder in REPORTS[name]])
    if skipped:
        sys.exit(f"{name}: {skipped}")
    return runs


def shown(name: str) -> set[str]:
    """The files of a report that a page shows."""
    pattern = re.compile(rf"examples/results/{name}/report/([\w/-]+\.(?:png|md))")
    return {file for page in PAGES for file in pattern.findall(page.read_text())}


def table(stem: str, comparison: Comparison, across: Sequence[str]) -> str:
    others = {
        "map": lambda comparison: maps.cells(comparison, across),
        "cell-pairs": lambda comparison: pairs.pairs_in_cells(comparison, across),
        "pairs": pairs.pairs,
        "collapse": lambda comparison: collapse.table(comparison.runs),
    }
    made = others.get(stem, getattr(tables, stem, None))(comparison)
    return tables.to_markdown(made) if made else ""


def filled(page: Path) -> str:
    """The page with the tables as they are now."""
    return BLOCK.sub(
        lambda block: block[1] + table_only(ROOT / block["path"], block["columns"]) + block[4], page.read_text()
    )


def table_only(path: Path, columns: str | None = None) -> str:
    """A report's table without its heading and notes, which the page has in its own words."""
    rows = [line for line in path.read_text().splitlines() if line.startswith("|")]
    if columns:
        cells = [row.split("|") for row in rows]
        rows = [f"|{'|'.join(row[int(number)] for number in columns.split(','))}|" for row in cells]
    return "".join(f"{row}\n" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
