"""Does a logged number predict a collapse? The table of archive/README.md, from the runs of the map:

python examples/results/map/collapse.py

A run collapsed if its validation ended below half of its own best. Its step is the first one from which on the
training pass rate stays below half of its best so far. A number gives an alarm at the first step at which it crosses a
threshold. An alarm before the collapse is a hit; in a run without one it is a false alarm. Thresholds are of the
runs with odd seeds. The table is of the runs with even seeds.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the scripts beside the campaigns
import campaigns
from maps import COLLAPSED, collapsed

from real_openrlhf.report.read_runs import PASS1, Run
from real_openrlhf.report.table_forms import NONE, Table, to_markdown

THRESHOLDS = 200  # that are tried, of the values that were logged
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


# The side of a threshold that is an alarm: 1 above it, -1 below.
SIGNALS: dict[str, tuple[Callable[[Step], float], int]] = {
    "spread of weights": (logged("real/weight_cv"), 1),
    "effective sample size": (effective_sample, -1),
    "score deviation": (logged("real/score_std"), 1),
    "largest score": (logged("real/score_abs_max"), 1),
    "negatives' share of weight": (negative_mass, 1),
    "gradient norm": (logged("actor_grad_norm"), 1),
    "clipped updates": (logged("update/frac_clipped"), 1),
    "entropy, low": (logged("entropy_loss"), -1),
    "entropy, high": (logged("entropy_loss"), 1),
    "KL to the old policy": (logged("ppo_kl"), 1),
    "largest ratio": (logged("update/ratio_max"), 1),
    "prompts all wrong": (logged("rollout/frac_all_wrong"), 1),
}


@dataclass(frozen=True)
class Story:
    """One run: each signal's value by step, where the method logs it, and the step of its collapse."""

    seed: int
    signals: dict[str, dict[int, float]]
    collapse: float  # infinite in a run that did not

    @classmethod
    def of(cls, run: Run) -> "Story":
        rows = {int(step): row.dropna().to_dict() for step, row in run.logged["train"].iterrows()}
        signals: dict[str, dict[int, float]] = {}
        for name, (value_of, _) in SIGNALS.items():
            for step, row in rows.items():
                try:
                    signals.setdefault(name, {})[step] = value_of(row)
                except KeyError:
                    continue
        return cls(run.seed or 0, signals, collapse_of(rows) if has_collapsed(run) else math.inf)

    def alarm(self, signal: str, threshold: float) -> int | None:
        """The first step that crosses the threshold, if it comes before the collapse."""
        side = SIGNALS[signal][1]
        crossed = (step for step, value in self.signals.get(signal, {}).items() if side * value > side * threshold)
        first = next(crossed, None)
        return first if first is not None and first < self.collapse else None


def has_collapsed(run: Run) -> bool:
    curves = (column.dropna() for name, column in run.logged["eval"].items() if PASS1.fullmatch(name))
    return any(map(collapsed, curves))


def collapse_of(rows: Mapping[int, Step]) -> int:
    """The first step from which on the pass rate stays below half of its best so far; else the last step."""
    steps, best = list(rows), 0.0
    first = last = steps[-1]
    for step, following in zip(steps, [*steps[1:], last], strict=True):
        rate = rows[step].get(PASS_RATE, math.nan)
        if not rate < COLLAPSED * best:
            first = following
        best = max(best, rate)
    return first


@dataclass(frozen=True)
class Prediction:
    """How well one signal does at one threshold, on some runs."""

    signal: str
    threshold: float
    ahead: list[int]  # steps from each hit to the collapse
    collapses: int
    false_alarms: int
    others: int

    @property
    def worth(self) -> float:
        """Share of collapses with a hit less the share of other runs with a false alarm."""
        return len(self.ahead) / max(self.collapses, 1) - self.false_alarms / max(self.others, 1)


def predict(stories: Sequence[Story], signal: str, threshold: float) -> Prediction:
    alarms = [(story.collapse, story.alarm(signal, threshold)) for story in stories]
    ahead = [int(collapse - alarm) for collapse, alarm in alarms if alarm is not None and collapse < math.inf]
    collapses = sum(collapse < math.inf for collapse, _ in alarms)
    false_alarms = sum(alarm is not None for _, alarm in alarms) - len(ahead)
    return Prediction(signal, threshold, ahead, collapses, false_alarms, len(stories) - collapses)


def predictions(runs: Sequence[Run]) -> list[Prediction]:
    """Every signal that runs of both halves logged, at its best threshold; the best first."""
    stories = [Story.of(run) for run in runs if run.counted]
    odd, even = ([story for story in stories if story.seed % 2 == half] for half in (1, 0))
    found = []
    for signal in SIGNALS:
        values = sorted({value for story in odd for value in story.signals.get(signal, {}).values()})
        if values and any(signal in story.signals for story in even):
            tried = values[:: max(1, len(values) // THRESHOLDS)]
            best = max(tried, key=lambda threshold: predict(odd, signal, threshold).worth)
            found.append(predict(even, signal, best))
    return sorted(found, key=lambda one: -one.worth)


def table(runs: Sequence[Run], _: Path) -> Table:
    rows = []
    for one in predictions(runs):
        rows.append(
            {
                "Signal": one.signal,
                "Threshold": f"{one.threshold:.3g}",
                "Collapses predicted": f"{len(one.ahead)} of {one.collapses}",
                "Steps ahead, median": f"{median(one.ahead):g}" if one.ahead else NONE,
                "False alarms": f"{one.false_alarms} of {one.others}",
            }
        )
    return Table("collapse", "Does a logged number predict a collapse?", rows)


if __name__ == "__main__":
    found = campaigns.runs([Path(word) for word in sys.argv[1:]] or [Path(__file__).parent], run_training_script=False)
    print(to_markdown(table(found, Path())), end="")
