"""The report's tables: summary, results, the paper's Table 1, and the runs."""

import math
import shlex
from collections.abc import Callable, Iterable, Sequence

import pandas as pd

from real_openrlhf.report.benchmarks import PUBLISHED, published
from real_openrlhf.report.curves import MANY, at_the_end, fall, near_end, over_training, training, validation
from real_openrlhf.report.statistics import LEVEL, MARGIN, Difference, Estimate, difference, estimate, holm
from real_openrlhf.report.table_forms import BLOCK, NONE, SE_NOTE, SETTING, WARNING, Row, Table
from real_openrlhf.report.task_runs import MethodRuns, TaskRuns, best_of_each_method, short

MAIN, FINAL, FALL = "Mean over training", "Held-out pass@1", "Best less last two"
TRAINING = {  # title -> keys of metrics, of which the first that a run logged counts
    "Pass rate": ("rollout/pass_rate", "rollout/reward_mean"),  # examples/tinker logs rewards of 1 and 0 alone
    "All-solved ratio": ("rollout/frac_all_correct",),
    "Entropy (nats per token)": ("rollout/entropy", "entropy_loss"),
    "Response length (tokens)": ("rollout/response_length_mean", "response_length"),
}
CLIPPED = ("update/frac_clipped",)


def summary(task: TaskRuns) -> Table:
    """A row per method: how it ended, and its difference from the reference with what may be said of it."""
    reference, differences = against_reference(task)
    rows: list[Row] = []
    for setting in best_of_each_method(task):
        curves = [validation(run, task.sets) for run in setting.counted]
        row: Row = {SETTING: setting.label, FINAL: _mean(at_the_end, curves), MAIN: _mean(over_training, curves)}
        row[FALL] = _mean(fall, curves)
        if reference and setting in differences:
            gap, p, p_equivalent = differences[setting]
            row[f"vs {reference.method}"] = Estimate(gap.mean, gap.se, signed=True)
            row |= {"p": "<0.001" if p < 0.001 else f"{p:.3f}", "Conclusion": conclusion(gap, p, p_equivalent)}
        elif reference:
            row |= dict.fromkeys((f"vs {reference.method}", "p"))
            row["Conclusion"] = "reference" if setting is reference else "too few runs"
        rows.append(row | {"Runs": setting.seeds})
    notes = [
        f"{FINAL}: the last evaluation. {MAIN}: average of the evaluations after step 0. It varies least, so "
        f"differences and conclusions are of it. {FALL}: the best evaluation minus the mean of the last two, of runs "
        f"with {MANY} or more; if it is large, lower the learning rate or keep the best checkpoint.",
        *[
            "Differences: the row minus the reference, by Welch's test at 5 %; p has Holm's correction. Both need "
            f"three finished runs. Conclusions: higher or lower if the test says so; equivalent within {MARGIN} if "
            "two one-sided tests do, also with Holm's correction; else inconclusive."
        ]
        * bool(reference),
    ]
    return Table("summary", "Summary", rows, notes)


def results(task: TaskRuns) -> Table:
    """The final metrics of every setting, over its finished runs."""
    rows: list[Row] = []
    for setting in task.methods:
        rates = {short(rate) for run in setting.runs if isinstance(rate := run.flags.get("--actor.adam.lr"), float)}
        curves = [validation(run, task.sets) for run in setting.counted]
        logged = {title: [training(run, keys) for run in setting.counted] for title, keys in TRAINING.items()}
        row: Row = {SETTING: setting.label, FINAL: _mean(at_the_end, curves), MAIN: _mean(over_training, curves)}
        row |= {title: _mean(near_end, values) for title, values in logged.items()}
        row["Clipped updates"] = _mean(pd.Series.mean, (training(run, CLIPPED) for run in setting.counted))
        steps = ", ".join(map(str, sorted({run.last_step for run in setting.counted})))
        row |= {"Step": steps, "Learning rate": rates.pop() if len(rates) == 1 else NONE}
        rows.append(row | {"Runs": setting.seeds})
    machines = len({str(run.meta.get("machine")) for run in task.runs})
    mixed = f"{WARNING}these runs are of {machines} machines. Compare methods that ran on the same ones."
    notes = [
        *[mixed] * (machines > 1),
        SE_NOTE,
        "Training metrics: mean over the last tenth of the steps.",
        "Clipped updates: the share that `--actor.max_norm` shortened. If settings differ here, compare them with "
        "`--actor.max_norm 100`.",
    ]
    return Table("results", "Results", rows, notes)


def _mean(value: Callable[[pd.Series], float | None], curves: Iterable[pd.Series | None]) -> Estimate | None:
    return estimate(value(curve) for curve in curves if curve is not None)


def against_reference(task: TaskRuns) -> tuple[MethodRuns | None, dict[MethodRuns, tuple[Difference, float, float]]]:
    """The first setting of the summary with enough runs; all others minus it, each with p and p of equivalence by
    Holm's correction."""
    values: dict[MethodRuns, list[float]] = {}  # of finished runs
    for setting in task.methods:
        for run in setting.counted:
            if (curve := validation(run, task.sets)) is not None:
                values.setdefault(setting, []).append(over_training(curve))
    for reference in filter(values.__contains__, best_of_each_method(task)):
        others = {other: difference(values[other], values[reference]) for other in values if other is not reference}
        if known := {setting: gap for setting, gap in others.items() if gap is not None}:
            corrected = zip(
                holm([g.p for g in known.values()]), holm([g.p_equivalent for g in known.values()]), strict=True
            )
            return reference, {
                setting: (gap, *ps) for (setting, gap), ps in zip(known.items(), corrected, strict=True)
            }
    return None, {}


def conclusion(gap: Difference, p: float, p_equivalent: float) -> str:
    if p < LEVEL:
        return "higher" if gap.mean > 0 else "lower"
    return f"equivalent within {MARGIN}" if p_equivalent < LEVEL else "inconclusive"


RANGES = {"below": "< 1−ε", "low": "[1−ε, 1)", "high": "[1, 1+ε]", "above": "> 1+ε"}
PARTS = {"% of tokens": (2, ""), "mean |W|": (4, "no token")}  # digits, and what stands for no tokens


def ratios(task: TaskRuns) -> Table | None:
    """The paper's Table 1, with a row for every method that logged it, with unchanged flags."""
    logs = {
        setting.label: [run.logged["train"] for run in setting.counted]
        for setting in task.methods
        if setting.counted and not setting.changed
        if all(f"ratio/{side}/high/share" in run.logged["train"] for run in setting.counted for side in ("pos", "neg"))
    }
    rows: list[Row] = []
    for side, heading in {"pos": "Positives", "neg": "Negatives"}.items() if logs else ():
        paper = PUBLISHED["ratios"][side]  # percent of the tokens, mean magnitude
        for at, (part, (digits, nothing)) in enumerate(PARTS.items()):
            row: Row = {BLOCK: f"{heading}: {part}", SETTING: "GRPO, paper"}
            rows.append(row | {title: published(paper[key][at], digits) or "clipped" for key, title in RANGES.items()})
            for label, runs in logs.items():
                row = {BLOCK: f"{heading}: {part}", SETTING: label}
                for key, title in RANGES.items():
                    pairs = [_share_and_magnitude(log, f"ratio/{side}/{key}") for log in runs]
                    row[title] = estimate((pair[at] for pair in pairs), digits) or nothing
                rows.append(row)
    notes = [
        "Table 1: percent of the class's tokens whose ratio π/π_old lies in the range (ε = 0.2), and their mean "
        "gradient magnitude, over all steps of a run. GRPO, DAPO, GSPO: of advantage 1, 0 where clipped. REAL and its "
        "variants: the response's weight |W|, 0 in a dropped group.",
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


def runs(tasks: Sequence[TaskRuns]) -> Table:
    rows: list[Row] = []
    for setting in (setting for task in tasks for setting in task.methods):
        for run in (*setting.runs, *setting.repeats):
            words = run.meta.get("words")  # of the training, where the command may be a resume or a comparison
            words = ["real-openrlhf", "train", *words] if isinstance(words, list) else run.meta.get("command")
            command = shlex.join(map(str, words)) if isinstance(words, list) else ""
            row: Row = {"Run": run.name, SETTING: setting.label, "Seed": str(run.seed), "Status": run.status}
            row |= {"Last step": str(run.last_step), "Code version": str(run.meta.get("code_version", ""))}
            rows.append(row | {"Command": command})
    return Table("runs", "Runs", rows)
