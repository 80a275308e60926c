"""The committed runs of a campaign, with campaigns that are one comparison pooled."""

import functools
from pathlib import Path

import campaigns

from real_openrlhf.report.read_runs import Run

HERE = Path(__file__).resolve().parent
POOLED = {"weights": ("weights-small", "weights-seeds")}  # one cell, in two goes


@functools.cache
def runs_of(name: str) -> list[Run]:
    runs = campaigns.runs(map(place, POOLED.get(name, (name,))))
    for run in runs if name in POOLED else ():  # one model, in folders of two names: equal numbers in the first step
        run.flags["--actor.model_name_or_path"] = name
    if name == "archive/knobs":  # these are changes to the REAL runs of `mixed` with the same seeds
        runs = runs + [run for run in runs_of("archive/mixed") if run.algo == "real" and run.seed in (1, 2, 3)]
    if name == "smollm2-controls":  # they have the seeds and the rate of REAL there
        runs = runs + runs_of("smollm2")
    return runs


def place(name: str) -> Path:
    """The folder of a campaign, or its part of a larger one (`rates/tune-rates`)."""
    larger = (runs.parent for runs in HERE.glob("*/runs.csv") if f"\n{name}/" in runs.read_text())
    return HERE / name if (HERE / name).exists() else next(larger, HERE) / name


def spread_over_tau(run: Run) -> float | None:
    """z: the scores' standard deviation / tau, mean over a run's steps. tau is weight_bound / weight_abs_max."""
    logged = run.logged["train"]
    names = ["real/score_std", "real/weight_bound", "real/weight_abs_max"]
    if not {*names} <= {*logged}:
        return None
    spread, bounds, weights = (logged[name] for name in names)
    return float(spread.mean() * weights.max() / bounds.max()) if bounds.max() else None
