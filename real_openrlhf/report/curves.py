"""The paper's metrics by name, and each setting's curve of one metric: a pandas series of values by step."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import Comparison, Setting
from real_openrlhf.report.statistics import Estimate, estimate

COLLAPSED = 0.5  # a run that ended below this share of its own best
TAIL = 0.1  # a training metric's final value is its mean over this share of the steps


@dataclass(frozen=True)
class Metric:
    """A number with a panel of its own, and the keys under which runs log it; the first key found counts."""

    name: str
    title: str
    phase: str
    keys: tuple[str, ...]
    higher_is_better: bool = False


ENTROPY = Metric("entropy", "Entropy (nats per token)", "train", ("rollout/entropy", "entropy_loss"))
VALIDATION = Metric("validation_pass1", "Validation pass@1", "eval", (), higher_is_better=True)
REWARD = Metric("reward", "Training reward", "train", ("rollout/reward_mean", "reward"), higher_is_better=True)
SOLVE_ALL = Metric("solve_all", "All-solved ratio", "train", ("rollout/solve_all",))
LOSS = Metric("loss", "Loss", "train", ("real/loss", "policy_loss"))
LENGTH = Metric(
    "response_length", "Response length (tokens)", "train", ("rollout/response_length_mean", "response_length")
)
CLIPPED = Metric("clipped", "Clipped updates", "train", ("update/clipped_share",))
BY_VERDICT = tuple(
    Metric(f"{what}_{side}", f"{title}, {side} answers", "train", (f"rollout/{what}_{side}",))
    for what, title in (("response_length", "Length"), ("truncated", "Cut"))
    for side in ("right", "wrong")
)
ENDS = (VALIDATION, REWARD, SOLVE_ALL, ENTROPY, LENGTH)  # the metrics of the table of final values
DYNAMICS = (ENTROPY, VALIDATION, REWARD, SOLVE_ALL)  # the paper's four panels
OF_ONE_RUN = (REWARD, VALIDATION, ENTROPY, LOSS)


def validation_sets(runs: Sequence[Run]) -> tuple[str, ...]:
    """The evaluation sets that all runs with an evaluation share; only means over these sets are comparable."""
    every = [run.sets for run in runs if run.sets]
    return tuple(sorted(set.intersection(*every))) if every else ()


@functools.cache
def series(run: Run, metric: Metric, sets: tuple[str, ...] = ()) -> pd.Series | None:
    """One run's curve of a metric; validation is the unweighted mean over the evaluation sets.

    A run that `--train.hopeless end` stopped keeps its last value until its planned end.
    """
    logged = run.logged[metric.phase]
    keys = [f"eval_{name}_pass1" for name in sets] if metric is VALIDATION else metric.keys
    found = [key for key in keys if key in logged]
    if not found or (metric is VALIDATION and len(found) < len(sets)):
        return None
    curve = logged[found].dropna().mean(axis=1) if metric is VALIDATION else logged[found[0]].dropna()
    planned = run.planned_steps
    if curve.empty or not planned or planned <= run.last_step:
        return None if curve.empty else curve
    every = flags_of(run.meta).get("--eval.steps") if metric.phase == "eval" else 1
    every = every if type(every) is int and every > 0 else planned
    steps = np.unique([*curve.index[curve.index == 0], *range(every, planned + 1, every), planned])
    return curve.reindex(steps[steps >= curve.index[0]], method="ffill")  # each time the newest value known by then


def all_series(runs: Sequence[Run], metric: Metric, sets: tuple[str, ...] = ()) -> list[pd.Series]:
    """The curves of the runs that logged the metric."""
    return [curve for run in runs if (curve := series(run, metric, sets)) is not None]


def band(runs: Sequence[pd.Series]) -> pd.DataFrame | None:
    """`mean` and standard error `se` over runs, at the steps where every run has a value; None if there is none."""
    table = pd.concat(runs, axis=1, join="inner") if runs else pd.DataFrame()
    return None if table.empty else pd.DataFrame({"mean": table.mean(axis=1), "se": table.sem(axis=1)})


def windowed(curve: pd.Series, length: int) -> pd.Series:
    """Means over windows of `length` steps counted from step 1, each placed at its last step; whole windows only.

    A run that logs only every few steps has fewer values in a whole window, and not the same number in each.
    """
    if length == 1 or curve.empty:
        return curve
    windows = curve.groupby((curve.index - 1) // length * length + length)
    every = float(np.median(np.diff(curve.index))) if len(curve) > 1 else 1.0
    ended = windows.mean().index < curve.index[-1] + every
    return windows.mean()[ended & (windows.size() >= max(1, math.floor(length / every)))]


@dataclass(frozen=True)
class Curve:
    """A setting's curve: the mean over its finished runs, these runs, and those that broke off."""

    setting: Setting
    band: pd.DataFrame | None
    runs: list[pd.Series]
    singles: list[pd.Series]


def curve(setting: Setting, metric: Metric, sets: tuple[str, ...] = (), window: int = 1) -> Curve:
    """Training metrics are averaged over windows of steps, the same for all settings of a figure.

    Runs that did not log the metric are left out of the setting's mean; `runs` has the others.
    """
    window = window if metric.phase == "train" else 1
    counted, broken_off = (
        [windowed(values, window) for values in all_series(runs, metric, sets)]
        for runs in (setting.counted, setting.broken_off)
    )
    return Curve(setting, band(counted), counted, broken_off)


def near_end(setting: Setting, metric: Metric, step: int | None, sets: tuple[str, ...] = ()) -> Estimate | None:
    """The value at that step (an evaluation), or the mean over the last tenth of the steps up to it (training).

    Over the finished runs that logged the metric there.
    """
    if step is None:
        return None
    span = max(1, math.ceil(TAIL * step)) if metric.phase == "train" else 1
    ends = (values.loc[step - span + 1 : step] for values in all_series(setting.counted, metric, sets))
    return estimate(float(end.mean()) for end in ends if len(end))


def last_shared(setting: Setting, metric: Metric, sets: tuple[str, ...] = ()) -> int | None:
    """The last step at which all finished runs that logged the metric did, so that all have trained for as many."""
    shared = band(all_series(setting.counted, metric, sets))
    return None if shared is None else int(shared.index[-1])


def over_training(curve: pd.Series) -> float:
    """The mean of the evaluations after step 0; if there are none, the evaluation at step 0."""
    later = curve[curve.index > 0]
    return float((later if len(later) else curve).mean())


def collapsed(curve: pd.Series) -> bool:
    return bool(curve.iloc[-1] < COLLAPSED * curve.max())


OVER_TRAINING, AT_THE_END, BEST, LOST = "Mean over training", "At the end", "Best", "Lost"


def outcomes(comparison: Comparison) -> pd.DataFrame:
    """A row a run: its setting, its block, and its validation. A run that broke off has no numbers.

    LOST is 1 for a run that failed or collapsed, and missing for one that still trains, that somebody interrupted, or
    that was not evaluated.
    """
    sets, rows = validation_sets(comparison.runs), []
    for setting in comparison.settings:
        for run in setting.runs:
            rows.append({"setting": setting, "run": run, "block": run.block})
            curve = series(run, VALIDATION, sets) if run.counted else None
            if curve is not None:
                ends = {AT_THE_END: float(curve.iloc[-1]), BEST: float(curve.max()), LOST: float(collapsed(curve))}
                rows[-1] |= {OVER_TRAINING: over_training(curve), **ends}
            elif run.status == "failed" and not str(run.meta.get("reason")).startswith("interrupted"):
                rows[-1] |= {LOST: 1.0}
    return pd.DataFrame(rows, columns=["setting", "run", "block", OVER_TRAINING, AT_THE_END, BEST, LOST])


def spread_over_tau(run: Run) -> float | None:
    """z: the scores' standard deviation / tau, mean over a run's steps. tau is weight_bound / weight_abs_max."""
    logged = run.logged["train"]
    names = ["real/score_std", "real/weight_bound", "real/weight_abs_max"]
    if not {*names} <= {*logged}:
        return None
    spread, bounds, weights = (logged[name] for name in names)
    return float(spread.mean() * weights.max() / bounds.max()) if bounds.max() else None
