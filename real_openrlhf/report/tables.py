"""The content of the report's tables."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from real_openrlhf.report.benchmarks import PUBLISHED, published
from real_openrlhf.report.curves import (
    BY_VERDICT,
    CLIPPED,
    ENDS,
    VALIDATION,
    all_series,
    last_shared,
    near_end,
    over_training,
    spread_over_tau,
    validation_sets,
)
from real_openrlhf.report.read_runs import word
from real_openrlhf.report.settings import REAL_FAMILY, Comparison, Setting
from real_openrlhf.report.statistics import Estimate, clear_winner, estimate
from real_openrlhf.report.table_forms import BLOCK, BOLD_NOTE, NONE, SE_NOTE, Row, Table

REACHED = 0.9  # share of the highest final validation: the threshold of `Steps to`
UNLIKE = 0.2  # difference of clipped shares that causes a warning


def results(comparison: Comparison) -> Table:
    """The final metrics of every setting, over its finished runs."""
    sets, settings = validation_sets(comparison.runs), comparison.settings
    steps = {metric: [last_shared(setting, metric, sets) for setting in settings] for metric in ENDS}
    ends = {
        metric: _winner_bold(
            [near_end(setting, metric, step, sets) for setting, step in zip(settings, at, strict=True)],
            competes=metric.higher_is_better and len({*at} - {None}) == 1,
        )
        for metric, at in steps.items()
    }
    highest = max((end.mean for end in ends[VALIDATION] if end), default=0.0)
    threshold = math.floor(20 * REACHED * highest) / 20
    means = _winner_bold(
        [estimate(map(over_training, all_series(s.counted, VALIDATION, sets))) for s in settings],
        competes=len({*steps[VALIDATION]} - {None}) == 1,
    )
    clipped = [estimate(float(one.mean()) for one in all_series(s.counted, CLIPPED)) for s in settings]
    own_steps = [sorted({*at} - {None}) for at in zip(*steps.values(), strict=True)]  # of each setting
    beside = {CLIPPED: clipped} if any(clipped) else {}
    for metric in BY_VERDICT:
        last = [near_end(s, metric, max(own, default=0)) for s, own in zip(settings, own_steps, strict=True)]
        beside |= {metric: last} if any(one and one.mean for one in last) else {}
    rows: list[Row] = [
        {
            "Setting": setting.label,
            "Mean over training": means[place],
            VALIDATION.title: ends[VALIDATION][place],
            f"Steps to {threshold:.2f}": _steps_to(setting, sets, threshold),
            **{metric.title: ends[metric][place] for metric in ENDS[1:]},
            "z": estimate(map(spread_over_tau, setting.counted if setting.algo in REAL_FAMILY else ())),
            **{metric.title: column[place] for metric, column in beside.items()},
            "Step": ", ".join(map(str, own_steps[place])),
            "Rate": setting.rate or NONE,
            "Runs": setting.seeds,
        }
        for place, setting in enumerate(settings)
    ]
    where = f", on {', '.join(sets)}{' (unweighted mean)' * (len(sets) > 1)}" if sets else ""
    notes = [
        SE_NOTE,
        BOLD_NOTE + " Only settings that ended at the same step, with three runs or more, compete.",
        f"Validation: at the last evaluation that all finished runs of a setting reached{where}. Training metrics: "
        "mean over the last tenth of the steps.",
        "Mean over training: the mean of evaluations after step 0, and the main endpoint of every comparison. A run "
        "that was stopped early keeps its last value until the planned end.",
        f"Steps to {threshold:.2f}, {REACHED:.0%} of the highest validation, rounded down: the first evaluation "
        "there; median over runs.",
        "z: the spread of the scores over tau, mean over the steps. Below 0.1 REAL's weights are constant within 8 %.",
    ]
    if any(clipped):
        notes.append("Clipped updates: the share that `--actor.max_norm` shortened, over all steps.")
    warnings = []
    places = [place.get("machine") for run in comparison.runs for place in run.places]
    known = [one for one in places if isinstance(one, dict)]
    machines = {word(one.get("gpus") or f"{one.get('cpu')} ({one.get('instructions')})") for one in known}
    if len(machines) > 1:  # a record without a machine says nothing
        warnings.append(
            f"These runs are of {len(machines)} machines ({'; '.join(sorted(machines))}), on which the same seeds "
            "give other numbers. A difference between rows of this table may be one of machines; "
            "`tables/differences` never is."
        )
    planned = sorted({step for step in steps[VALIDATION] if step is not None})
    if len(planned) > 1:
        warnings.append(
            f"These settings ended at steps {', '.join(map(str, planned))}, so their means over training are over "
            "unlike spans. Compare runs of equal `--max-steps`."
        )
    if repeats := [run.name for setting in settings for run in setting.repeats]:
        they = "1 run repeats" if len(repeats) == 1 else f"{len(repeats)} runs repeat"
        warnings.append(
            f"{they} a seed of their setting on the same machine, such as {word(repeats[0])}. Each seed counts once."
        )
    shares = [one.mean for one in clipped if one]
    if shares and (apart := max(shares) - min(shares)) > UNLIKE:
        said = (
            f"Unfair clipping: the clipped shares of two settings differ by {apart:.2f}, so `--actor.max_norm` gives "
            "them steps of unlike size. Compare without clipping: `--actor.max_norm 100`."
        )
        warnings.insert(0, said)
    return Table("results", "At the end of training", rows, notes, warnings)


def _winner_bold(column: list[Estimate | None], competes: bool) -> list[Estimate | None]:
    best = clear_winner(column) if competes else None
    return [replace(one, bold=True) if one and place == best else one for place, one in enumerate(column)]


def _steps_to(setting: Setting, sets: tuple[str, ...], threshold: float) -> str:
    """The step of the first evaluation at or above the threshold, median over runs."""
    curves = all_series(setting.counted, VALIDATION, sets)
    steps = np.median([min(curve.index[curve >= threshold], default=math.inf) for curve in curves]) if curves else None
    return NONE if steps is None else f"{steps:g}" if math.isfinite(steps) else "not reached"


RANGES = {"below": "< 1−ε", "low": "[1−ε, 1)", "high": "[1, 1+ε]", "above": "> 1+ε"}
SIDES = {"pos": "Positives", "neg": "Negatives"}


def ratios(comparison: Comparison) -> Table | None:
    """The paper's Table 1, with a row for every method that logged it, with unchanged flags."""
    logs = {
        setting: [run.logged["train"] for run in setting.counted]
        for setting in comparison.settings
        if setting.counted and not setting.deviation
        if all(any(key.startswith("ratio/") for key in run.logged["train"]) for run in setting.counted)
    }
    if not logs:
        return None
    rows: list[Row] = []
    for side, heading in SIDES.items():
        paper = [PUBLISHED["ratios"][side][name] for name in RANGES]  # percent of the tokens, mean magnitude
        cells = {
            setting: [[_over_steps(log, f"ratio/{side}/{name}") for log in found] for name in RANGES]
            for setting, found in logs.items()
        }
        parts = (("% of tokens", 2, ""), ("mean |W|", 4, "no token"))
        for column, (part, digits, nothing) in enumerate(parts):
            theirs = [published(one[column], digits) or "clipped" for one in paper]
            ours = {
                setting.label: [estimate((pair[column] for pair in pairs), digits) or nothing for pairs in found]
                for setting, found in cells.items()
            }
            rows += [
                {BLOCK: f"{heading}: {part}", "Method": label, **dict(zip(RANGES.values(), found, strict=True))}
                for label, found in {"GRPO, paper": theirs, **ours}.items()
            ]
    notes = [
        "Percent of the class's tokens whose ratio π/π_old lies in the range (ε = 0.2), and their mean gradient "
        "magnitude. Mean over all steps of a run, magnitudes weighted by share. " + SE_NOTE,
        "GRPO, DAPO, GSPO: advantage 1, 0 where clipping is active. REAL and its variants: the rollout's weight |W|, "
        "0 in a group that is dropped.",
        f"{PUBLISHED['ratios']['source']}.",
    ]
    return Table("ratios", "Tokens by ratio range, and mean gradient magnitude (the paper's Table 1)", rows, notes)


def _over_steps(log: pd.DataFrame, key: str) -> tuple[float, float | None]:
    """Mean share, and the mean magnitude of tokens in the range; None if the run had no tokens there."""
    if not {f"{key}/share", f"{key}/grad"} <= {*log}:
        return math.nan, None
    shares, grads = log[f"{key}/share"], log[f"{key}/grad"].dropna()
    weights = shares.reindex(grads.index).fillna(0.0)
    return float(shares.mean()), float((weights * grads).sum() / weights.sum()) if weights.sum() else None
