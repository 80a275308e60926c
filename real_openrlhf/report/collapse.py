"""Does a logged number say that a run will collapse? From which threshold, how far ahead, with how many false alarms.

A run has collapsed if its validation ended below half of its own best. Its step is the first one from which on every
step's training pass rate is below half of the best before it: so the rollouts of all earlier steps were still right.
A number gives an alarm at the first step at which it crosses a threshold. In a run that collapses an alarm at an
earlier step than that is a hit; in any other run an alarm is a false one. Thresholds are chosen on some seeds, and all
that is said is of the others.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from real_openrlhf.report.curves import PASS1
from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.tables import NONE, Row, Table, words

COLLAPSED = 0.5  # a run that ended below this share of its own best
PASS_RATE = "rollout/pass_rate"
Step = Mapping[str, float]  # what one logged


def negative_mass(row: Step) -> float:
    """The negatives' share of all weight."""
    right = row[PASS_RATE] * row["real/weight_pos"]
    wrong = (1 - row[PASS_RATE]) * row["real/weight_neg"]
    return wrong / (right + wrong) if right + wrong else 0.0


def effective_sample(row: Step) -> float:
    """Of a class of one group, as a share of its rollouts: 1 at equal weights."""
    return 1 / (1 + row["real/weight_cv"] ** 2)


def logged(name: str) -> Callable[[Step], float]:
    return lambda row: row[name]


# What is asked, and on which side of a threshold the alarm is: 1 above it, -1 below.
SIGNALS: dict[str, tuple[Callable[[Step], float], int]] = {
    "spread of weights": (logged("real/weight_cv"), 1),
    "effective sample size": (effective_sample, -1),
    "score deviation": (logged("real/score_std"), 1),
    "largest score": (logged("real/score_abs_max"), 1),
    "negatives' share of weight": (negative_mass, 1),
    "gradient norm": (logged("actor_grad_norm"), 1),
    "clipped updates": (logged("update/clipped_share"), 1),
    "entropy, low": (logged("entropy_loss"), -1),
    "entropy, high": (logged("entropy_loss"), 1),
    "KL to the old policy": (logged("ppo_kl"), 1),
    "largest ratio": (logged("update/ratio_max"), 1),
    "prompts all wrong": (logged("rollout/solve_none"), 1),
}


@dataclass(frozen=True)
class Story:
    """One run, step by step, and the step of its collapse."""

    seed: int | None
    rows: dict[int, Step]
    collapse: int | None

    @classmethod
    def of(cls, run: Run) -> "Story":
        columns = run.logged.get("train", {})
        rows: dict[int, dict[str, float]] = {}
        for name, column in columns.items():
            for step, value in zip(column.steps.tolist(), column.values.tolist(), strict=True):
                rows.setdefault(step, {})[name] = value
        rows = dict(sorted(rows.items()))
        return cls(run.seed, dict(rows), collapse_of(rows) if has_collapsed(run) else None)

    def alarm(self, signal: str, threshold: float) -> int | None:
        """The first step that crosses the threshold, early enough to be a prediction."""
        value, side = SIGNALS[signal]
        for step, row in self.rows.items():
            if step == self.collapse:
                return None
            try:
                number = value(row)
            except KeyError:
                continue  # this method does not log it
            if side * number > side * threshold:
                return step
        return None

    def values(self, signal: str) -> list[float]:
        value, _ = SIGNALS[signal]
        found = []
        for row in self.rows.values():
            try:
                found.append(value(row))
            except KeyError:
                continue
        return found


def has_collapsed(run: Run) -> bool:
    curves = [column.values for name, column in run.logged.get("eval", {}).items() if PASS1.fullmatch(name)]
    return any(len(values) and values[-1] < COLLAPSED * values.max() for values in curves)


def collapse_of(rows: Mapping[int, Step]) -> int:
    """The first step from which on the pass rate stays below half of its best so far; else the last step."""
    steps = list(rows)
    best, below = 0.0, []
    for row in rows.values():
        rate = row.get(PASS_RATE, math.nan)
        below.append(rate < COLLAPSED * best)
        best = max(best, rate)
    first = len(below)
    while first and below[first - 1]:
        first -= 1
    return steps[min(first, len(steps) - 1)]


@dataclass(frozen=True)
class Prediction:
    """How well one signal does at one threshold, on some runs."""

    signal: str
    threshold: float
    hits: int
    collapses: int
    ahead: float  # steps, the median of the hits; nan without one
    false_alarms: int
    others: int

    @property
    def worth(self) -> float:
        """Share of collapses that were told less the share of other runs that were warned of."""
        return self.hits / max(self.collapses, 1) - self.false_alarms / max(self.others, 1)


def predict(stories: Sequence[Story], signal: str, threshold: float) -> Prediction:
    ahead, false_alarms = [], 0
    for story in stories:
        alarm = story.alarm(signal, threshold)
        if alarm is not None and story.collapse is not None:
            ahead.append(story.collapse - alarm)
        false_alarms += alarm is not None and story.collapse is None
    collapses = sum(story.collapse is not None for story in stories)
    middle = float(median(ahead)) if ahead else math.nan
    return Prediction(signal, threshold, len(ahead), collapses, middle, false_alarms, len(stories) - collapses)


def best_threshold(stories: Sequence[Story], signal: str, most: int = 200) -> float | None:
    """The threshold of the largest `worth`; None where nobody logged the signal."""
    values = sorted({value for story in stories for value in story.values(signal)})
    tried = values[:: max(1, len(values) // most)]
    if not tried:
        return None
    return max(tried, key=lambda threshold: predict(stories, signal, threshold).worth)


def predictions(runs: Iterable[Run]) -> list[Prediction]:
    """Every signal: its threshold from runs with odd seeds, its figures from the others; the best first."""
    stories = [Story.of(run) for run in runs if run.counted]
    chosen_on = [story for story in stories if (story.seed or 0) % 2]
    told_of = [story for story in stories if not (story.seed or 0) % 2]
    found = []
    for signal in SIGNALS:
        silent = not any(story.values(signal) for story in told_of)
        threshold = best_threshold(chosen_on, signal)
        if threshold is not None and not silent:
            found.append(predict(told_of, signal, threshold))
    return sorted(found, key=lambda one: -one.worth)


def table(runs: Sequence[Run]) -> Table | None:
    """What says a collapse beforehand; None where no run with an even seed collapsed."""
    found = predictions(runs)
    if not found or not found[0].collapses:
        return None
    rows = []
    for one in found:
        ahead = f"{one.ahead:g}" if one.hits else NONE
        told, false = f"{one.hits} of {one.collapses}", f"{one.false_alarms} of {one.others}"
        rows.append(Row([words(text) for text in (one.signal, f"{one.threshold:.3g}", told, ahead, false)]))
    heads = ["Signal", "Threshold", "Collapses told", "Steps ahead, median", "False alarms"]
    notes = [
        "Thresholds are chosen on the runs with odd seeds; all other figures are of those with even ones. A collapse "
        "is told if the signal crosses its threshold in an earlier step than the first one whose rollouts, and all "
        "later ones, are right less than half as often as before."
    ]
    return Table("collapse", "What says a collapse beforehand", heads, [("", rows)], notes)
