"""Everything measured in README.md and on the pages comes from the campaigns in this folder, by this command:

python examples/results/refresh.py            # what the pages show of the runs' reports, and the tables in the pages
python examples/results/refresh.py --check    # changes nothing; exit 1 if a page shows something else
"""

import argparse
import functools
import re
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import ages
import check
import gradient_magnitude
import maps
import places
import sentences
from drawing import save_png, shrink
from methods import REAL_FAMILY
from records import HERE, runs_of, spread_over_tau

from real_openrlhf.report import table_forms, tables
from real_openrlhf.report.page import write
from real_openrlhf.report.settings import TaskRuns, tasks
from real_openrlhf.report.statistics import estimate

ROOT = HERE.parent.parent
PAGES = (ROOT / "README.md", *sorted((HERE / "archive").glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
FIGURE_ONE = ROOT / "docs" / "images" / "gradient_magnitude.png"  # needs no runs
DRAWN = {  # of all campaigns
    "rates.png": places.rates,
    "spread.png": places.spread,
    "ages.png": ages.save_picture,
}
FOLDERS = sorted(path.name for path in HERE.iterdir() if path.is_dir())
MAP = "figures/map.png"
ACROSS = {  # the flags of a map
    "map": ("--actor.adam.lr", "--train.batch_size"),
}
CHECKED = {  # the columns of check.py's tables
    "claims": [
        *("Claim", "Setting", "Over training", "Last evaluation"),
        *("Rates/best", "Seeds", "Pre-registered", "Conclusion"),
    ],
    "by_rate": [
        *("z above 0.1", "Rate/REAL's best", "Pairs"),
        *("Fixed weights collapsed", "REAL collapsed", "Both"),
    ],
}
LINK = re.compile(r"\]\(([^)#\s]+\.(?:png|md))\)")
# A campaign and one of its report's tables, like `tune results`. `columns Setting|Steps to` takes columns by title,
# or by its beginning; else a page shows all.
BLOCK = re.compile(
    r"(<!-- table: (?P<name>\S+) (?P<stem>\S+)(?: columns (?P<columns>[^\n]+?))? -->\n).*?(<!-- end -->)", re.DOTALL
)


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
    for name in FOLDERS:
        report = HERE / name / "report"
        files = shown(report)
        shutil.rmtree(report, ignore_errors=True)
        if not files:
            continue
        with tempfile.TemporaryDirectory() as folder:
            if name in ACROSS:
                save_png(maps.heat_maps(maps.cells(runs_of(name), ACROSS[name]), ACROSS[name]), Path(folder) / MAP)
            else:
                write(runs_of(name), [], Path(folder))
            for file in files:
                target = report / file
                target.parent.mkdir(parents=True, exist_ok=True)
                if target.suffix == ".md":
                    target.write_text(table(name, target.stem))
                else:
                    shutil.copyfile(Path(folder) / file, target)
                    shrink(target)
    gradient_magnitude.save_picture(FIGURE_ONE)
    for name, draw in DRAWN.items():
        draw(FIGURE_ONE.parent / name)
    for page in PAGES:
        page.write_text(filled(page))


def problems() -> Iterator[str]:
    for name in FOLDERS:
        report = HERE / name / "report"
        files = shown(report)
        there = {str(path.relative_to(report)) for path in report.rglob("*.*")}
        yield from (f"{report / file} is shown by a page and missing" for file in files - there)
        yield from (f"{report / file} is shown by no page" for file in there - files)
        for file in map(Path, there):
            if file.suffix == ".md" and (report / file).read_text() != table(name, file.stem):
                yield f"{report / file} is not what the runs say"
    for page in PAGES:
        text = page.read_text()
        if text.count("<!-- table:") != len(BLOCK.findall(text)):
            yield f"{page} has a table without a campaign, a name or an end"
    yield from (f"{page} is not what {HERE} says" for page in PAGES if page.read_text() != filled(page))


def shown(report: Path) -> set[str]:
    """The files of a report that a page shows or links to."""
    paths = {(page.parent / link).resolve() for page in PAGES for link in LINK.findall(page.read_text())}
    return {str(path.relative_to(report)) for path in paths if path.is_relative_to(report)}


@functools.cache
def table(name: str, stem: str) -> str:
    """One of the report's tables, or that of a script beside the campaign."""
    if name == "check":
        rows = [
            CHECKED[stem],
            ["---"] * len(CHECKED[stem]),
            *{**check.TABLES, **sentences.tables()}[f"check {stem}"](),
        ]
        return "".join(f"|{'|'.join(row)}|\n" for row in rows)
    runs = runs_of(name)
    scripts = HERE / name.partition("-")[0]
    if (scripts / f"{stem}.py").is_file():
        return table_forms.to_markdown(runpy.run_path(str(scripts / f"{stem}.py"))["table"](runs, HERE / name))
    (task,) = tasks(runs)
    made = getattr(tables, stem)(task)
    return table_forms.to_markdown(with_z(made, task) if stem == "results" else made) if made else ""


def with_z(results: table_forms.Table, task: TaskRuns) -> table_forms.Table:
    """The table of results with one more column: how far REAL's weights differ."""
    of_real = (setting.counted if setting.algo in REAL_FAMILY else [] for setting in task.settings)
    z = [estimate(map(spread_over_tau, runs)) for runs in of_real]
    return replace(results, rows=[{**row, "z": cell} for row, cell in zip(results.rows, z, strict=True)])


def filled(page: Path) -> str:
    """The page with the tables as they are now."""

    def new(block: re.Match) -> str:
        return block[1] + table_only(block["name"], block["stem"], block["columns"]) + block[5]

    return BLOCK.sub(new, page.read_text())


def table_only(name: str, stem: str, columns: str | None = None) -> str:
    """A report's table without its heading and notes, which the page has in its own words."""
    rows = [line for line in table(name, stem).splitlines() if line.startswith("|")]
    if columns:
        cells = [row.split("|") for row in rows]
        places = [_place(title, [cell.strip() for cell in cells[0]]) for title in columns.split("|")]
        rows = [f"|{'|'.join(row[place] for place in places)}|" for row in cells]
    return "".join(f"{row}\n" for row in rows)


def _place(title: str, titles: list[str]) -> int:
    found = [titles.index(title)] if title in titles else [n for n, one in enumerate(titles) if one.startswith(title)]
    if len(found) != 1:
        sys.exit(f"a page wants the column {title!r}, and there are {titles[1:-1]}")
    return found[0]


if __name__ == "__main__":
    sys.exit(main())
