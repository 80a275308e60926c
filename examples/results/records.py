"""The committed runs of a campaign, with campaigns that are one comparison pooled."""

import functools
import sys
from pathlib import Path

from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.read_runs import Run, read_runs

HERE = Path(__file__).resolve().parent
POOLED = {"weights": ("weights-small", "weights-seeds")}  # one cell, in two goes


@functools.cache
def runs_of(name: str) -> list[Run]:
    runs, skipped = read_runs(map(place, POOLED.get(name, (name,))))
    if skipped:
        sys.exit(f"{name}: {skipped}")
    for run in runs if name in POOLED else ():  # one model, in folders of two names: equal numbers in the first step
        flags_of(run.meta)["--actor.model_name_or_path"] = name
    if name == "archive/knobs":  # these are changes to the REAL runs of `mixed` with the same seeds
        runs = runs + [run for run in runs_of("archive/mixed") if run.algo == "real" and run.seed in (1, 2, 3)]
    if name == "smollm2-controls":  # they have the seeds and the rate of REAL there
        runs = runs + runs_of("smollm2")
    return runs


def place(name: str) -> Path:
    """The folder of a campaign, or its part of a larger one (`rates/tune-rates`)."""
    larger = (runs.parent for runs in HERE.glob("*/runs.csv") if f"\n{name}/" in runs.read_text())
    return HERE / name if (HERE / name).exists() else next(larger, HERE) / name
