"""real-openrlhf report: run folders in; figures, tables and one HTML page out."""

import argparse

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import path_of


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=path_of, metavar="RUN_DIR", help="run folders, or a folder of such")
    parser.add_argument("--out", required=True, type=path_of, metavar="DIR", help="folder of page, figures and tables")


def run(args: argparse.Namespace) -> int:
    from real_openrlhf.report.page import refuse_foreign, write  # matplotlib takes seconds
    from real_openrlhf.report.read_runs import read_runs
    from real_openrlhf.runs.run_folder import record_ending

    refuse_foreign(args.out)
    runs, skipped = read_runs(args.runs)
    if not runs:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in skipped)
        raise UserError(f"no run to report on ({reasons}). Name folders made by real-openrlhf train.")
    for path in (run.path for run in runs if run.meta.get("unseen")):
        if ending := record_ending(path):
            print(ending[0])
    for path, reason in skipped:
        print(f"skipped {path}: {reason}")
    page = write(runs, skipped, args.out)
    print(f"{len(runs)} run{'s' * (len(runs) != 1)} reported, {len(skipped)} skipped")
    print(page)
    return 0
