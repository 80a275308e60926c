"""What says beforehand that a run will collapse? For any set of runs:

python examples/results/predict.py examples/results/map/runs [--algos real grpo] [--csv FILE]

Thresholds are chosen on runs with odd seeds, the figures are of runs with even ones.
"""

import argparse
import csv
import sys
from pathlib import Path

from real_openrlhf.report.collapse import Prediction, predictions
from real_openrlhf.report.read_runs import read_runs

COLUMNS = ("signal", "threshold", "told of collapses", "steps ahead (median)", "false alarms")


def cells(one: Prediction) -> list[str]:
    ahead = f"{one.ahead:g}" if one.hits else "–"
    return [
        one.signal,
        f"{one.threshold:.3g}",
        f"{one.hits} of {one.collapses}",
        ahead,
        f"{one.false_alarms} of {one.others}",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--algos", nargs="+", help="only runs of these")
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    runs, skipped = read_runs(args.runs)
    for path, reason in skipped:
        print(f"skipped {path}: {reason}", file=sys.stderr)
    found = predictions(run for run in runs if not args.algos or run.algo in args.algos)
    if not found or not found[0].collapses:
        print("no run with an even seed collapsed: there is nothing to predict", file=sys.stderr)
        return 1
    rows = [COLUMNS, ["---"] * len(COLUMNS), *map(cells, found)]
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    if args.csv:
        with open(args.csv, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *map(cells, found)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
