"""Everything in README.md and docs/results.md that was measured comes from the runs in this folder, by this command:

python examples/results/refresh.py            # reports from the runs, then the tables between the markers
python examples/results/refresh.py --check    # changes nothing; exit 1 if a page says something else
"""

import argparse
import re
import sys
from pathlib import Path

from real_openrlhf.report.command import write
from real_openrlhf.report.read_runs import read_runs
from real_openrlhf.report.settings import compare
from real_openrlhf.report.tables import results, to_markdown

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "results.md")
# The runs of each report: `knobs` are changes to the REAL runs of `mixed` with the same seeds.
REPORTS = {
    "mixed": ["mixed/runs"],
    "knobs": ["knobs/runs", *(f"mixed/runs/real-s{seed}" for seed in (1, 2, 3))],
    "hard": ["hard/runs"],
    "more": ["more/runs"],
}
BLOCK = re.compile(r"(<!-- table: (?P<path>\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    for name, folders in REPORTS.items():
        runs, skipped = read_runs([HERE / folder for folder in folders])
        if skipped:
            print(f"{name}: {skipped}", file=sys.stderr)
            return 1
        if not args.check:
            write(runs, skipped, HERE / name / "report")
        table = HERE / name / "report" / "tables" / "results.md"
        if table.read_text() != to_markdown(results(*compare(runs))):
            print(f"{table} is not what the runs say: run {Path(__file__).name}", file=sys.stderr)
            return 1
    stale = [page for page in PAGES if page.read_text() != filled(page)]
    for page in stale:
        if args.check:
            print(f"{page} is not what examples/results says: run {Path(__file__).name}", file=sys.stderr)
        else:
            page.write_text(filled(page))
    return int(args.check and bool(stale))


def filled(page: Path) -> str:
    """The page with the tables as they are now."""
    return BLOCK.sub(lambda block: block[1] + table_only(ROOT / block["path"]) + block[3], page.read_text())


def table_only(path: Path) -> str:
    """A report's table without its heading and notes, which the page has in its own words."""
    return "".join(line + "\n" for line in path.read_text().splitlines() if line.startswith("|"))


if __name__ == "__main__":
    sys.exit(main())
