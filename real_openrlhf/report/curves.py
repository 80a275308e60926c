"""The paper's metrics by name, and each setting's curve of one metric."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.read_runs import PASS1, Run
from real_openrlhf.report.settings import Setting
from real_openrlhf.report.statistics import Band, Estimate, Series, band, estimate, final, windowed


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
    matches = ([PASS1.fullmatch(key) for key in run.logged.get("eval", {})] for run in runs)
    sets_of_runs = [sets for found in matches if (sets := {match[1] for match in found if match})]
    return tuple(sorted(set.intersection(*sets_of_runs))) if sets_of_runs else ()


def series(run: Run, metric: Metric, sets: Sequence[str] = ()) -> Series | None:
    """One run's curve of a metric; validation is the unweighted mean over the evaluation sets.

    A run that `--train.hopeless end` stopped keeps its last value until its planned end.
    """
    logged = run.logged.get(metric.phase, {})
    found: Series | None
    if metric is VALIDATION:
        parts = [logged[key] for name in sets if (key := f"eval_{name}_pass1") in logged]
        found = band(parts) if len(parts) == len(sets) else None
    else:
        found = next((logged[key] for key in metric.keys if key in logged), None)
    planned = run.planned_steps
    if found is None or not planned or planned <= run.last_step:
        return found
    every = flags_of(run.meta).get("--eval.steps") if metric.phase == "eval" else 1
    return carried(found, every if type(every) is int and every > 0 else planned, planned)


def carried(curve: Series, every: int, last: int) -> Series:
    """The curve at each multiple of `every` and at `last`, each time with the newest value known by then."""
    steps = np.unique([*curve.steps[curve.steps == 0], *range(every, last + 1, every), last])
    steps = steps[steps >= curve.steps[0]]
    return Series(steps, curve.values[np.searchsorted(curve.steps, steps, side="right") - 1])


def all_series(runs: Sequence[Run], metric: Metric, sets: Sequence[str] = ()) -> list[Series]:
    """The curves of the runs that logged the metric."""
    return [curve for run in runs if (curve := series(run, metric, sets)) is not None]


@dataclass(frozen=True)
class Curve:
    """A setting's curve: the mean over its finished runs, these runs, and those that broke off."""

    setting: Setting
    band: Band | None
    runs: tuple[Series, ...]
    singles: tuple[Series, ...]

    @property
    def absent(self) -> bool:
        return self.band is None and not self.singles


def curve(setting: Setting, metric: Metric, sets: Sequence[str] = (), window: int = 1) -> Curve:
    """Training metrics are averaged over windows of steps, the same for all settings of a figure.

    Runs that did not log the metric are left out of the setting's mean; `Band.n` counts the others.
    """
    window = window if metric.phase == "train" else 1
    counted, broken_off = (
        [windowed(values, window) for values in all_series(runs, metric, sets)]
        for runs in (setting.counted, setting.broken_off)
    )
    return Curve(setting, band(counted), tuple(counted), tuple(broken_off))


@dataclass(frozen=True)
class Final:
    """A setting's number at the end of training, over its finished runs."""

    step: int
    estimate: Estimate


def at_end(setting: Setting, metric: Metric, sets: Sequence[str] = ()) -> Final | None:
    """The metric at the last step that all finished runs logged, so that all have trained for as many steps."""
    curves = all_series(setting.counted, metric, sets)
    shared = band(curves)
    if shared is None:
        return None
    last = int(shared.steps[-1])
    found = estimate(final(values, last, tail=metric.phase == "train") for values in curves)
    return Final(last, found) if found else None


def near_end(setting: Setting, metric: Metric, step: int) -> Estimate | None:
    """Over the last tenth of the steps up to this one, of the finished runs that logged the metric there."""
    return estimate(final(values, step, tail=True) for values in all_series(setting.counted, metric))


def over_training(curve: Series) -> float:
    """The mean of the evaluations after step 0; if there are none, the evaluation at step 0."""
    later = curve.values[curve.steps > 0]
    return float((later if len(later) else curve.values).mean())


def steps_to(curves: Sequence[Series], threshold: float) -> float:
    """The step of the first evaluation at or above the threshold, or infinity; median over runs."""
    there = (curve.steps[curve.values >= threshold].tolist() for curve in curves)
    return statistics.median([steps[0] if steps else math.inf for steps in there])


def spread_over_tau(run: Run) -> float | None:
    """z: the scores' standard deviation / tau, mean over a run's steps. tau is weight_bound / weight_abs_max."""
    logged = run.logged.get("train", {})
    names = ("real/score_std", "real/weight_bound", "real/weight_abs_max")
    if not all(name in logged for name in names):
        return None
    spread, bounds, weights = (logged[name].values for name in names)
    return float(spread.mean() * weights.max() / bounds.max()) if bounds.max() else None
