"""The best rate of each method in a comparison that varied it, as `compare --algos` takes it, a line a method:

python examples/results/best_rates.py comparison/map/runs comparison/tune-rates/runs

--over-training: by the mean over training in place of the end. --seeds=3: seeds 1 to 3 decide in place of 1 and 2.
--any-updates: runs of any `--train.batch_size` count.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import campaigns
from methods import METHODS

from real_openrlhf.report.read_runs import Run
from real_openrlhf.report.settings import over_training as mean_over_training
from real_openrlhf.report.settings import validation
from real_openrlhf.runs.run_folder import json_value

RATE = "--actor.adam.lr"
BATCH = "--train.batch_size"
TOLD_APART = (
    "--actor.policy_loss_type",
    "--algo.real.objective",
    "--algo.real.set",
    "--algo.real.tau",
    "--algo.advantage.is_correction_level",
    "--algo.advantage.is_correction_mode",
    "--algo.advantage.is_correction_threshold",
)
UPDATES = 64, 32  # of the recipes, the first one where nothing is said; a map varies it too
TUNING = 2  # seeds; others are for what comes after


def best_rates(
    runs: list[Run], over_training: bool = False, tuning: int = TUNING, any_updates: bool = False
) -> dict[str, float]:
    """{method and its own flags: rate} by the last validation, or the mean of all after step 0, over the tuning seeds.

    Of rates that are level, the lower one.
    """
    sets = sorted(set.intersection(*(run.sets for run in runs if run.sets)))
    scores: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run, words in zip(runs, _arms(runs), strict=True):
        curve = validation(run, sets)
        flags = run.flags
        counts = any_updates or flags.get(BATCH, UPDATES[0]) in UPDATES
        if run.seed in range(1, tuning + 1) and run.counted and curve is not None and counts:
            scores[words][flags[RATE]].append(mean_over_training(curve) if over_training else curve.iloc[-1])
    return {
        words: max(sorted(rates), key=lambda rate: sum(rates[rate]) / len(rates[rate]))
        for words, rates in scores.items()
    }


def _arms(runs: list[Run]) -> Iterator[str]:
    """A run's method, with the flags that tell it from other runs of that method, and those that it changes itself."""
    values: dict[str, dict[str, set]] = defaultdict(lambda: defaultdict(set))
    for run in runs:
        for flag in TOLD_APART:
            values[run.algo][flag].add(_value(run, flag))
    for run in runs:
        usual = METHODS[run.algo].settings if run.algo in METHODS else {}
        own = {flag: _value(run, flag) for flag in TOLD_APART}
        told = {flag: v for flag, v in own.items() if len(values[run.algo][flag]) > 1 or not _is(v, usual.get(flag))}
        yield " ".join([run.algo, *(f"{flag} {value}" for flag, value in told.items() if value is not None)])


def _value(run: Run, flag: str) -> object:
    return _words(run.flags.get(flag))


def _words(value: object) -> object:
    if isinstance(value, str):
        return value.removeprefix(f"{Path.cwd()}/")  # as it was given
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _is(value: object, words: str | None) -> bool:
    """The method has this value by itself; or the run does not say, and has the method's."""
    return value is None or (words is not None and value == _words(json_value(tuple(words.split()))))


if __name__ == "__main__":
    options = {word for word in sys.argv[1:] if word.startswith("--")}
    seeds = [int(word.partition("=")[2]) for word in options if word.startswith("--seeds=")]
    folders = [Path(word) for word in sys.argv[1:] if word not in options]
    found = campaigns.runs(folders)
    best = best_rates(found, "--over-training" in options, *(seeds or [TUNING]), "--any-updates" in options)
    for words, rate in best.items():
        print(f"{words} {RATE} {rate:g}")
