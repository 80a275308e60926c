"""Group runs that differ only in the seed into settings, and settings of one task into comparisons."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.report.read_runs import Run, word
from real_openrlhf.runs.run_folder import json_value

# Label texts for flags of the paper's ablations, where a run's value differs from its method's value.
OWN = "objective "
WORDS = {
    "--algo.real.objective": OWN + "{}",
    "--algo.real.tau": "τ = {}",
    "--algo.real.uniform_groups": "uniform groups: {}",
    "--algo.real.set": "{}",
    "--algo.real.truncated": "truncated: {}",
    "--algo.real.kl_old_coef": "KL to old policy {}",
    "--algo.kl.init_coef": "KL to reference {}",
    "--algo.advantage.is_correction_level": "sampler corrected by {}",
}
# Flags that can change what is learned; the others (engines, logging, checkpoints) cannot.
LEARNING = ("--actor.", "--algo.", "--train.", "--rollout.", "--data.", "--reward.", "--eval.")
NOT_LEARNING = ("--train.seed", "--train.run_dir", "--algo.real.wave_depth")  # the last changes the layout only
MAX_POINTS = 100  # a curve is averaged over equal windows of steps until it has no more points than this
REAL_FAMILY = tuple(name for name, algorithm in ALGORITHMS.items() if algorithm.family == "REAL")


@dataclass(frozen=True, eq=False)
class Setting:
    """One method with one choice of its knobs, and its runs, which differ in the seed only."""

    algo: str
    deviation: tuple[str, ...]  # flags that differ from the method's, in words
    distinction: tuple[str, ...]  # flags that differ between this method's settings, beside these
    runs: tuple[Run, ...]
    repeats: tuple[Run, ...] = ()  # runs of a seed that one of `runs` has on the same machine: a second look at it

    @property
    def label(self) -> str:
        method = ALGORITHMS[self.algo].label if self.algo in ALGORITHMS else self.algo
        named = () if self.has_own_objective else (method,)
        return ", ".join((*named, *self.deviation, *self.distinction))

    @property
    def has_own_objective(self) -> bool:
        """Whether the user's own objective trained in place of the method's."""
        return any(words.startswith(OWN) for words in self.deviation)

    @property
    def rate(self) -> str:
        """The learning rate of its runs; empty if they do not name one or differ."""
        rates = {flags_of(run.meta).get("--actor.adam.lr") for run in self.runs}
        return f"{rate:g}" if len(rates) == 1 and isinstance(rate := rates.pop(), float) else ""

    @property
    def counted(self) -> list[Run]:
        return [run for run in self.runs if run.counted]

    @property
    def broken_off(self) -> list[Run]:
        return [run for run in self.runs if not run.counted]

    @property
    def seeds(self) -> str:
        """The number of runs behind a curve, in words, and of those that are not averaged."""
        words = [f"{len(self.counted)} run{'s' * (len(self.counted) != 1)}"] if self.counted else []
        if stopped := sum(run.last_step < (run.planned_steps or 0) for run in self.counted):
            words[0] += f", {stopped} stopped early"
        for status in sorted({run.status for run in self.broken_off}):
            words.append(f"{sum(run.status == status for run in self.broken_off)} {status}, not averaged")
        return "; ".join(words)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Settings trained on the same task: only these share a figure."""

    name: str
    settings: tuple[Setting, ...]

    @property
    def runs(self) -> list[Run]:
        return [run for setting in self.settings for run in setting.runs]

    @property
    def window(self) -> int:
        """How many steps are averaged into one point of a curve."""
        return -(-max(run.last_step for run in self.runs) // MAX_POINTS) or 1


def compare(runs: Sequence[Run], across: Sequence[str] = ()) -> list[Comparison]:
    """Runs by task (recipe and training data), then by method and knobs; a setting may vary `across` these flags.

    A plain log does not name its task: it joins the other runs if these share one task, else it is a task of its own.
    """
    tasks: dict[tuple, list[Run]] = defaultdict(list)
    for run in runs:
        tasks[_task(run)].append(run)
    if plain := tasks.pop((), []):
        tasks[next(iter(tasks)) if len(tasks) == 1 else ()] += plain
    names = _task_names(tasks)
    return [Comparison(name, _settings(members, across)) for name, members in zip(names, tasks.values(), strict=True)]


def _task(run: Run) -> tuple:
    if not run.meta:
        return ()
    data = run.meta.get("data")
    data = tuple(sorted(map(str, data.values()))) if isinstance(data, dict) else ()
    # the last two parts: a local model's folder is often just called model
    model = "/".join(PurePath(str(flags_of(run.meta).get("--actor.model_name_or_path", ""))).parts[-2:])
    return str(run.meta.get("recipe")), model, data


def _task_names(tasks: Mapping[tuple, Sequence[Run]]) -> list[str]:
    """Evaluation sets and recipe of each task; with model, and then number, only if names would be equal."""
    names = []
    for task, runs in tasks.items():
        # of the first run that was evaluated; a recipe for CPU trains many tasks
        on = ", ".join(sorted(next((run.sets for run in runs if run.sets), ())))
        names.append(word(f"{on} ({task[0]})" if on else task[0]) if task else "plain logs")
    names = [
        f"{name}, {word(task[1])}" if names.count(name) > 1 else name for name, task in zip(names, tasks, strict=True)
    ]
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]


def _settings(runs: list[Run], across: Sequence[str]) -> tuple[Setting, ...]:
    alike: dict[tuple, list[Run]] = defaultdict(list)
    for run in runs:
        alike[run.algo, _deviation(run, across), bool(run.meta), _own_code(run)].append(run)
    settings = []
    for (algo, deviation, has_record, code), members in alike.items():
        knobs = {run: _knobs(run) for run in members}
        flags = sorted(set().union(*knobs.values()) - {*across})
        varied = [flag for flag in flags if len({str(known.get(flag)) for known in knobs.values()}) > 1]
        clash = [key for key in alike if key[:2] == (algo, deviation) and key[2:] != (has_record, code)]
        apart = () if not clash else (f"file {code}",) if code else () if has_record else ("plain log",)
        seeds: dict[tuple, list[Run]] = defaultdict(list)
        for run in sorted(members, key=lambda run: (run.seed is None, run.seed, run.name)):
            words = (f"{flag.removeprefix('--')} {knobs[run].get(flag, 'not set')}" for flag in varied)
            seeds[*map(word, words), *apart].append(run)
        settings += [Setting(algo, deviation, distinction, *_once(same)) for distinction, same in seeds.items()]
    order = [*ALGORITHMS]
    return tuple(sorted(settings, key=lambda s: ([*order, s.algo].index(s.algo), s.algo, s.deviation, s.distinction)))


def _own_code(run: Run) -> str:
    """The user's objective, rule for labels, agent and rewards by their content: files of one name may differ."""
    known = [files for key in ("objective", "rewards") if isinstance(files := run.meta.get(key), dict)]
    return ", ".join(sorted(str(sha)[:6] for files in known for sha in files.values()))


def _once(same: Sequence[Run]) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """(runs, repeats): of finished runs with one seed on one known machine the first one; the others add nothing."""
    kept: list[Run] = []
    repeats: list[Run] = []
    seen: set[tuple] = set()
    for run in same:
        key = run.seed, run.block
        known = run.counted and run.seed is not None and run.meta.get("machine")
        (repeats if known and key in seen else kept).append(run)
        seen |= {key} if known else set()
    return tuple(kept), tuple(repeats)


def _knobs(run: Run) -> dict[str, Any]:
    """The flags that can change what is learned, without seeds and paths."""
    knobs = {}
    for flag, value in flags_of(run.meta).items():
        own_place = isinstance(value, str) and (run.name in value or run.path.name in value)
        if flag.startswith(LEARNING) and flag not in NOT_LEARNING and not own_place:
            knobs[flag] = PurePath(value).name if isinstance(value, str) and "/" in value else value
    return knobs


def _deviation(run: Run, across: Sequence[str]) -> tuple[str, ...]:
    """The flags whose values differ from the method's values, in words."""
    usual = ALGORITHMS[run.algo].settings if run.algo in ALGORITHMS else {}
    flags = {flag: value for flag, value in flags_of(run.meta).items() if flag not in across}
    changes = [flag for flag, setting in usual.items() if flag in flags and flags[flag] != json_value(setting.words)]
    additions = [flag for flag in WORDS if flag not in usual and flags.get(flag)] if usual else []
    words = []
    for flag in changes + additions:
        value = flags[flag]
        if isinstance(value, list):
            text = " ".join(map(str, value))
        else:  # of a path only its last part
            text = f"{value:g}" if isinstance(value, float) else PurePath(str(value)).name
        words.append(word(WORDS.get(flag, flag.removeprefix("--") + " {}").format(text)))
    return tuple(words)
