"""The content of the report's tables."""

import math
from collections.abc import Sequence

from real_openrlhf.report.benchmarks.scores import PUBLISHED
from real_openrlhf.report.curves import (
    BY_VERDICT,
    CLIPPED,
    ENDS,
    VALIDATION,
    Final,
    Metric,
    all_series,
    at_end,
    near_end,
    over_training,
    spread_over_tau,
    steps_to,
    validation_sets,
)
from real_openrlhf.report.methods import REAL_FAMILY
from real_openrlhf.report.settings import Comparison, Setting, machine_warning
from real_openrlhf.report.statistics import Series, clear_winner, estimate
from real_openrlhf.report.table_forms import BOLD_NOTE, NONE, SE_NOTE, Cell, Table, value, words

REACHED = 0.9  # share of the highest final validation: the threshold of `Steps to`
UNLIKE = 0.2  # difference of clipped shares that causes a warning


def results(comparison: Comparison) -> Table:
    """The final metrics of every setting, over its finished runs."""
    sets = validation_sets(comparison.runs)
    ends = [[at_end(setting, metric, sets) for metric in ENDS] for setting in comparison.settings]
    highest = max((row[0].estimate.mean for row in ends if row[0]), default=0.0)
    threshold = math.floor(20 * REACHED * highest) / 20
    bold = {column: _winner([row[column] for row in ends], metric) for column, metric in enumerate(ENDS)}
    means = [estimate(map(over_training, all_series(s.counted, VALIDATION, sets))) for s in comparison.settings]
    alike = len({row[0].step for row in ends if row[0]}) == 1
    steadiest = clear_winner(means) if alike else None
    logged = [all_series(setting.counted, CLIPPED) for setting in comparison.settings]
    clipped = [estimate(float(one.values.mean()) for one in of_runs) for of_runs in logged]
    beside = [(CLIPPED, clipped)] if any(clipped) else []
    for metric in BY_VERDICT:
        last = [
            near_end(setting, metric, max((end.step for end in row if end), default=0))
            for setting, row in zip(comparison.settings, ends, strict=True)
        ]
        beside += [(metric, last)] if any(one and one.mean for one in last) else []
    rows = []
    for place, (setting, row) in enumerate(zip(comparison.settings, ends, strict=True)):
        steps = sorted({end.step for end in row if end is not None})
        numbers = [
            Cell(number=end.estimate if end else None, bold=bold[column] == place) for column, end in enumerate(row)
        ]
        throughout = Cell(number=means[place], bold=steadiest == place)
        numbers = [throughout, numbers[0], words(_steps_to(setting, sets, threshold)), *numbers[1:]]
        spreads = map(spread_over_tau, setting.counted if setting.algo in REAL_FAMILY else ())
        numbers.append(Cell(number=estimate(spreads)))
        numbers += [Cell(number=column[place]) for _, column in beside]
        until = words(", ".join(map(str, steps)))
        rows.append([words(setting.label), *numbers, until, words(setting.rate or NONE), words(setting.seeds)])
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
    shares = [one.mean for one in clipped if one]
    warnings = []
    if shares and max(shares) - min(shares) > UNLIKE:
        warnings.append(
            f"Unfair clipping: the clipped shares of two settings differ by {max(shares) - min(shares):.2f}, so "
            "`--actor.max_norm` gives them steps of unlike size. Compare without clipping: `--actor.max_norm 100`."
        )
    warnings += machine_warning(comparison.runs)
    if any(clipped):
        notes.append("Clipped updates: the share that `--actor.max_norm` shortened, over all steps.")
    first, *ends_after = (metric.title for metric in ENDS)
    columns = ["Setting", "Mean over training", first, f"Steps to {threshold:.2f}", *ends_after, "z"]
    columns += [*(metric.title for metric, _ in beside), "Step", "Rate", "Runs"]
    return Table("results", "At the end of training", columns, [("", rows)], notes, warnings, folds=True)


def _steps_to(setting: Setting, sets: Sequence[str], threshold: float) -> str:
    curves = all_series(setting.counted, VALIDATION, sets)
    steps = steps_to(curves, threshold) if curves else math.nan
    return NONE if math.isnan(steps) else f"{steps:g}" if math.isfinite(steps) else "not reached"


def _winner(ends: Sequence[Final | None], metric: Metric) -> int | None:
    if not metric.higher_is_better or len({end.step for end in ends if end is not None}) != 1:
        return None
    return clear_winner([end.estimate if end else None for end in ends])


RANGES = {"below": "< 1−ε", "low": "[1−ε, 1)", "high": "[1, 1+ε]", "above": "> 1+ε"}
SIDES = {"pos": "Positives", "neg": "Negatives"}


def ratios(comparison: Comparison) -> Table | None:
    """The paper's Table 1, with a row for every method that logged it, with unchanged flags."""
    plain = [s for s in comparison.settings if s.counted and not s.deviation]
    logs = {s: [run.logged.get("train", {}) for run in s.counted] for s in plain}
    settings = [s for s in plain if all(any(key.startswith("ratio/") for key in log) for log in logs[s])]
    if not settings:
        return None
    blocks = []
    for side, heading in SIDES.items():
        paper = [PUBLISHED["ratios"][side][name] for name in RANGES]  # percent of the tokens, mean magnitude
        shares = [[words("GRPO, paper"), *(value(share, 2) for share, _ in paper)]]
        grads = [[words("GRPO, paper"), *(words("clipped") if grad is None else value(grad, 4) for _, grad in paper)]]
        for setting in settings:
            pairs = [[_over_steps(log, f"ratio/{side}/{name}") for log in logs[setting]] for name in RANGES]
            cells = [Cell(number=estimate(share for share, _ in found), digits=2) for found in pairs]
            shares.append([words(setting.label), *cells])
            means = [estimate(grad for _, grad in found) for found in pairs]
            cells = [Cell("" if mean else "no token", mean, digits=4) for mean in means]
            grads.append([words(setting.label), *cells])
        blocks += [(f"{heading}: % of tokens", shares), (f"{heading}: mean |W|", grads)]
    notes = [
        "Percent of the class's tokens whose ratio π/π_old lies in the range (ε = 0.2), and their mean gradient "
        "magnitude. Mean over all steps of a run, magnitudes weighted by share. " + SE_NOTE,
        "GRPO, DAPO, GSPO: advantage 1, 0 where clipping is active. REAL and its variants: the rollout's weight |W|, "
        "0 in a group that is dropped.",
        f"{PUBLISHED['ratios']['source']}.",
    ]
    title = "Tokens by ratio range, and mean gradient magnitude (the paper's Table 1)"
    return Table("ratios", title, ["Method", *RANGES.values()], blocks, notes)


def _over_steps(log: dict[str, Series], key: str) -> tuple[float, float | None]:
    """Mean share, and the mean magnitude of tokens in the range; None if the run had no tokens there."""
    shares, grads = log.get(f"{key}/share"), log.get(f"{key}/grad")
    if shares is None or grads is None:
        return math.nan, None
    weight = dict(zip(shares.steps.tolist(), shares.values.tolist(), strict=True))
    pairs = [(weight.get(s, 0.0), g) for s, g in zip(grads.steps.tolist(), grads.values.tolist(), strict=True)]
    total = sum(share for share, _ in pairs)
    mean = sum(share * grad for share, grad in pairs) / total if total else None
    return float(shares.values.mean()), mean
