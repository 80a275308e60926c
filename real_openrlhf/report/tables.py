"""The report's tables: results, differences from the first setting, and the paper's Table 1."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

import pandas as pd

from real_openrlhf.report.benchmarks import PUBLISHED, published
from real_openrlhf.report.settings import Setting, Task, at_the_end, near_end, over_training, training, validation
from real_openrlhf.report.statistics import LEVEL, MARGIN, Difference, Estimate, difference, estimate, holm
from real_openrlhf.report.table_forms import BLOCK, NONE, SE_NOTE, Row, Table

MAIN, END = "Mean over training", "At the end"
ENDPOINTS: dict[str, Callable[[pd.Series], float]] = {MAIN: over_training, END: at_the_end}
VALIDATION = "Validation pass@1"
TRAINING = {  # title -> keys of metrics, of which the first that a run logged counts
    "Training reward": ("rollout/reward_mean", "reward"),
    "All-solved ratio": ("rollout/frac_all_correct",),
    "Entropy (nats per token)": ("rollout/entropy", "entropy_loss"),
    "Response length (tokens)": ("rollout/response_length_mean", "response_length"),
}
CLIPPED = ("update/frac_clipped",)
Samples = Mapping[Setting, Mapping[str, list[float]]]  # setting -> machine and starting model -> one value a run


def results(task: Task) -> Table:
    """The final metrics of every setting, over its finished runs."""
    rows: list[Row] = []
    for setting in task.settings:
        rates = {f"{rate:g}" for run in setting.runs if isinstance(rate := run.flags.get("--actor.adam.lr"), float)}
        curves = [validation(run, task.sets) for run in setting.counted]
        logged = {title: [training(run, keys) for run in setting.counted] for title, keys in TRAINING.items()}
        row: Row = {"Setting": setting.label, MAIN: _mean(over_training, curves)}
        row[VALIDATION] = _mean(at_the_end, curves)
        row |= {title: _mean(near_end, values) for title, values in logged.items()}
        row["Clipped updates"] = _mean(pd.Series.mean, (training(run, CLIPPED) for run in setting.counted))
        row |= {"Step": ", ".join(map(str, _steps(setting))), "Rate": rates.pop() if len(rates) == 1 else NONE}
        rows.append(row | {"Runs": setting.seeds})
    notes = [
        f"{SE_NOTE} Evaluated on {', '.join(task.sets) or 'nothing'}.",
        f"{MAIN}: of the evaluations after step 0, the main endpoint of every comparison. Training metrics: mean over "
        "the last tenth of the steps.",
        "Clipped updates: the share that `--actor.max_norm` shortened. Settings that differ here took steps of unlike "
        "size: compare them with `--actor.max_norm 100`.",
    ]
    return Table("results", "At the end of training", rows, notes, [*_warnings(task)])


def _mean(value: Callable[[pd.Series], float], curves: Iterable[pd.Series | None]) -> Estimate | None:
    return estimate(float(value(curve)) for curve in curves if curve is not None)


def _steps(setting: Setting) -> list[int]:
    return sorted({run.last_step for run in setting.counted})


def _warnings(task: Task) -> Iterator[str]:
    if blocks := len({run.block for run in task.runs}) - 1:
        yield (
            f"These runs are of {blocks + 1} machines or starting models, on which the same seeds give other numbers. "
            "A difference between rows of this table may be one of machines; `tables/differences` never is."
        )
    if len(steps := sorted({step for setting in task.settings for step in _steps(setting)})) > 1:
        yield (
            f"These runs ended at steps {', '.join(map(str, steps))}, so their means over training are over unlike "
            "spans. Compare runs of equal `--max-steps`."
        )
    if repeats := [run.name for setting in task.settings for run in setting.repeats]:
        same = f"{len(repeats)} of the runs repeat a seed of their setting on the same machine"
        yield f"{same}, such as {repeats[0]}. Each seed counts once."


def samples(task: Task, value: Callable[[pd.Series], float]) -> Samples:
    """One value of each finished run's validation."""
    values: dict[Setting, dict[str, list[float]]] = {}
    for setting in task.settings:
        for run in setting.counted:
            if (curve := validation(run, task.sets)) is not None:
                values.setdefault(setting, {}).setdefault(run.block, []).append(value(curve))
    return values


def less_first(values: Samples) -> tuple[Setting | None, dict[Setting, tuple[Difference, float]]]:
    """The first setting with enough runs; and the others less it, with p by Holm's correction."""
    for place, first in enumerate(values):
        gaps = {setting: difference(values[setting], values[first]) for setting in [*values][place + 1 :]}
        if known := {setting: gap for setting, gap in gaps.items() if gap is not None}:
            corrected = holm([gap.p for gap in known.values()])
            return first, {setting: (gap, p) for (setting, gap), p in zip(known.items(), corrected, strict=True)}
    return None, {}


def verdict(gap: Difference, p: float) -> str:
    if p < LEVEL:
        return "higher" if gap.mean > 0 else "lower"
    low, high = gap.interval(0.9)
    return "level" if -MARGIN < low and high < MARGIN else "open"


def differences(task: Task) -> Table | None:
    """Every setting less the first one; None if no two settings have three runs each."""
    rows: list[Row] = []
    for name, value in ENDPOINTS.items():
        first, gaps = less_first(samples(task, value))
        for setting, (gap, p) in gaps.items():
            less = f"Less {first.label if first else NONE}"
            row: Row = {BLOCK: name, "Setting": setting.label, less: Estimate(gap.mean, gap.se, gap.runs[0])}
            row["95 % interval"] = "{:.3f} to {:.3f}".format(*gap.interval(0.95))
            row["p (Holm)"] = f"{p:.3f}" if p >= 0.001 else "< 0.001"
            row |= {"Detectable": f"{gap.detectable(len(gaps)):.3f}", "It is": verdict(gap, p)}
            rows.append(row | {"Runs": str(gap.runs[0])})
    notes = [
        "Validation pass@1 of each setting less that of the first with three runs; ± is the standard error. Welch's "
        "test among runs of one machine; p has Holm's correction for the rows of an endpoint.",
        f"Detectable: the difference that this test names with a probability of 80 %. Level: the 90 % interval lies "
        f"within ± {MARGIN}. Open: neither.",
        *filter(None, [_untested(samples(task, over_training))]),
    ]
    return Table("differences", "Differences", rows, notes) if rows else None


def _untested(values: Samples) -> str:
    first, gaps = less_first(values)
    left = [setting.label for setting in values if setting is not first and setting not in gaps]
    return f"Fewer than three runs beside it, so not compared: {'; '.join(left)}." if first and left else ""


def sentence(task: Task) -> str:
    """What the runs of a task say, by the main endpoint."""
    values = samples(task, over_training)
    if not values:
        return "No finished run has an evaluation yet."
    first, gaps = less_first(values)
    if first is None:
        means = {setting: estimate(itertools.chain(*blocks.values())) for setting, blocks in values.items()}
        numbers = ", ".join(f"{setting.label} {mean}" for setting, mean in means.items())
        return f"Fewer than three runs a setting rank nothing. Mean over training: {numbers}."
    named: dict[str, list[str]] = defaultdict(list)
    for setting, (gap, p) in gaps.items():
        seen = f" ({gap.detectable(len(gaps)):.2f} would have shown)" if verdict(gap, p) == "open" else ""
        named[verdict(gap, p)].append(f"{setting.label} by {gap.mean:+.3f}{seen}")
    says = {"higher": "Above", "lower": "Below", "level": "Level with", "open": "Cannot be told apart from"}
    parts = [f"{says[name]} {first.label}: {'; '.join(named[name])}." for name in says if name in named]
    return " ".join(["By the mean over training.", *parts, _untested(values)]).strip()


RANGES = {"below": "< 1−ε", "low": "[1−ε, 1)", "high": "[1, 1+ε]", "above": "> 1+ε"}


def ratios(task: Task) -> Table | None:
    """The paper's Table 1, with a row for every method that logged it, with unchanged flags."""
    logs = {
        setting.label: [run.logged["train"] for run in setting.counted]
        for setting in task.settings
        if setting.counted and not setting.changed
        if all(f"ratio/{side}/high/share" in run.logged["train"] for run in setting.counted for side in ("pos", "neg"))
    }
    rows: list[Row] = []
    for side, heading in {"pos": "Positives", "neg": "Negatives"}.items() if logs else ():
        paper = [PUBLISHED["ratios"][side][name] for name in RANGES]  # percent of the tokens, mean magnitude
        pairs = {
            label: [[_share_and_magnitude(log, f"ratio/{side}/{name}") for log in runs] for name in RANGES]
            for label, runs in logs.items()
        }
        for column, (part, digits, nothing) in enumerate((("% of tokens", 2, ""), ("mean |W|", 4, "no token"))):
            cells: dict[str, list] = {"GRPO, paper": [published(pair[column], digits) or "clipped" for pair in paper]}
            for label, ranges in pairs.items():
                cells[label] = [estimate((pair[column] for pair in runs), digits) or nothing for runs in ranges]
            for label, entries in cells.items():
                row: Row = {BLOCK: f"{heading}: {part}", "Method": label}
                rows.append(row | dict(zip(RANGES.values(), entries, strict=True)))
    notes = [
        "Percent of the class's tokens whose ratio π/π_old lies in the range (ε = 0.2), and their mean gradient "
        "magnitude. Mean over all steps of a run, magnitudes weighted by share. " + SE_NOTE,
        "GRPO, DAPO, GSPO: advantage 1, 0 where clipping is active. REAL and its variants: the rollout's weight |W|, "
        "0 in a group that is dropped.",
        f"{PUBLISHED['ratios']['source']}.",
    ]
    title = "Tokens by ratio range, and mean gradient magnitude (the paper's Table 1)"
    return Table("ratios", title, rows, notes) if rows else None


def _share_and_magnitude(log: pd.DataFrame, key: str) -> tuple[float, float | None]:
    """Mean share, and the mean magnitude of tokens in the range; None if no step had tokens there."""
    shares = log.get(f"{key}/share")
    if shares is None:
        return math.nan, None
    magnitudes = log.get(f"{key}/grad", shares * math.nan).dropna()  # a step without tokens there has none
    weights = shares.reindex(magnitudes.index).fillna(0.0)
    return float(shares.mean()), float((weights * magnitudes).sum() / weights.sum()) if weights.sum() else None
