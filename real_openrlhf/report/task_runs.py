"""Group runs: those that differ in the seed only are `MethodRuns`, and settings trained alike are `TaskRuns`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from real_openrlhf.base.parsing import json_value
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.report.curves import over_training, validation
from real_openrlhf.report.read_runs import Run, word
from real_openrlhf.report.statistics import FEWEST

OWN = "objective "
WORDS = {  # labels of flags that a run may change or add; any other flag has its own name
    "--algo.real.objective": OWN + "{}",
    "--algo.real.tau": "τ = {}",
    "--algo.real.uniform_groups": "uniform groups: {}",
    "--algo.real.set": "{}",
    "--algo.real.truncated": "truncated: {}",
    "--algo.real.kl_old_coef": "KL to old policy {}",
    "--algo.kl.init_coef": "KL to reference {}",
    "--algo.advantage.is_correction_level": "sampler corrected by {}",
}
SHORT = {"--actor.adam.lr": "lr", "--actor.eps_clip_low_high": "clip", "--train.batch_size": "batch"}
# Flags that can change what is learned; the others (engines, logging, checkpoints) cannot.
LEARNING = ("--actor.", "--algo.", "--train.", "--rollout.", "--data.", "--reward.", "--eval.")
NOT_LEARNING = ("--train.seed", "--train.run_dir", "--algo.real.max_live_micro_batches")  # the last: the layout only
MOST = 12  # settings that a figure and the summary show; of more, the best of each method


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """One setting: a method with one choice of its flags, and its runs, which differ in the seed only."""

    algo: str
    changed: tuple[str, ...]  # flags that differ from the method's, in words
    varied: tuple[str, ...]  # flags that differ between this method's settings, beside these
    runs: tuple[Run, ...]
    repeats: tuple[Run, ...] = ()  # of a seed that one of `runs` has on the same machine: they add nothing

    @property
    def method(self) -> str:
        usual = ALGORITHMS[self.algo].label if self.algo in ALGORITHMS else self.algo
        return next((words for words in self.changed if words.startswith(OWN)), usual)

    @property
    def label(self) -> str:
        return ", ".join(dict.fromkeys((self.method, *self.changed, *self.varied)))

    @property
    def counted(self) -> list[Run]:
        return [run for run in self.runs if run.counted]

    @property
    def seeds(self) -> str:
        """The number of runs that are averaged, and of those that are not."""
        count = Counter(run.status for run in self.runs if not run.counted)
        count["of a repeated seed"] = len(self.repeats)
        words = [str(len(self.counted))] if self.counted else []
        return "; ".join([*words, *(f"{count[why]} {why}, not averaged" for why in sorted(count) if count[why])])


@dataclass(frozen=True, eq=False)
class TaskRuns:
    """Settings of one recipe, model and data: only these share a table or figure."""

    name: str
    methods: tuple[MethodRuns, ...]

    @property
    def runs(self) -> list[Run]:
        return [run for setting in self.methods for run in setting.runs]

    @property
    def sets(self) -> tuple[str, ...]:
        """The evaluation sets that all evaluated runs share; only means over these are comparable."""
        sets = [run.sets for run in self.runs if run.sets]
        return tuple(sorted(set.intersection(*sets))) if sets else ()


def tasks(runs: Iterable[Run]) -> list[TaskRuns]:
    alike: dict[tuple, list[Run]] = defaultdict(list)
    for run in runs:
        data, recipe = run.meta.get("data"), run.meta.get("recipe")
        recipe = recipe if isinstance(recipe, str) else None
        # the last two parts: a local model's folder is often just called model
        model = "/".join(PurePath(str(run.flags.get("--actor.model_name_or_path", ""))).parts[-2:])
        data = " ".join(sorted(map(str, data.values()))) if isinstance(data, dict) else ""
        alike[recipe, model, str(run.meta.get("starting_weights") or ""), data].append(run)
    names = {}
    for key, members in alike.items():
        on = ", ".join(sorted(next((run.sets for run in members if run.sets), ())))
        names[key] = word(f"{on} ({key[0]})" if on else key[0])
    for at, kind in enumerate(("model", "weights", "data"), 1):  # what tells tasks of one name apart
        several = {name: {key[at] for key in names if names[key] == name} for name in names.values()}
        for key, name in names.items():
            if len(several[name]) > 1:
                part = key[at] if kind == "model" else " ".join(sha[:6] for sha in key[at].split())
                names[key] = f"{name}, {kind} {word(part) or 'unknown'}"
    return [TaskRuns(names[key], _settings(members)) for key, members in alike.items()]


def _settings(runs: Iterable[Run]) -> tuple[MethodRuns, ...]:
    alike: dict[tuple, list[Run]] = defaultdict(list)
    for run in runs:
        alike[run.algo, _changed(run), _own_code(run)].append(run)
    settings = []
    for (algo, changed, code), members in alike.items():
        flags = {run: _learning(run) for run in members}
        names = sorted({name for known in flags.values() for name in known})
        varied = [name for name in names if len({str(known.get(name)) for known in flags.values()}) > 1]
        several_files = code and sum(key[:2] == (algo, changed) for key in alike) > 1
        seeds: dict[tuple, list[Run]] = defaultdict(list)
        for run in sorted(members, key=lambda run: (run.seed is None, run.seed, run.name)):
            words = [f"{SHORT.get(name, name.removeprefix('--'))} {short(flags[run].get(name))}" for name in varied]
            seeds[*map(word, words), *([f"file {code}"] if several_files else [])].append(run)
        settings += [MethodRuns(algo, changed, words, *_without_repeats(same)) for words, same in seeds.items()]
    order = [*ALGORITHMS]
    return tuple(sorted(settings, key=lambda s: ([*order, s.algo].index(s.algo), s.algo, s.changed, s.varied)))


def short(value: Any) -> str:
    """1e-4 for 0.0001"""
    if isinstance(value, float) and 0 < value < 1e-3:
        digits, power = f"{value:.3e}".split("e")
        return f"{float(digits):g}e{int(power)}"
    return "not set" if value is None else str(value)


def _own_code(run: Run) -> str:
    """The user's objective and rewards by their content: files of one name may differ."""
    files = [known for key in ("objective", "rewards") if isinstance(known := run.meta.get(key), dict)]
    return ", ".join(sorted(str(sha)[:6] for known in files for sha in known.values()))


def _without_repeats(same: Sequence[Run]) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """(runs, repeats): of finished runs with one seed on one known machine the first one counts."""
    first: dict[tuple, Run] = {}
    for run in same:
        known = run.counted and run.seed is not None and run.meta.get("machine")
        first.setdefault((run.seed, str(known)) if known else (run,), run)
    runs = {*first.values()}
    return tuple(run for run in same if run in runs), tuple(run for run in same if run not in runs)


def _learning(run: Run) -> dict[str, Any]:
    """The flags that can change what is learned, without seeds and paths."""
    known = {flag: v for flag, v in run.flags.items() if flag.startswith(LEARNING) and flag not in NOT_LEARNING}
    paths = {flag: PurePath(v) for flag, v in known.items() if isinstance(v, str) and "/" in v}
    own = {flag for flag, path in paths.items() if {run.name, run.path.name} & {*path.parts}}
    return {flag: paths[flag].name if flag in paths else v for flag, v in known.items() if flag not in own}


def _changed(run: Run) -> tuple[str, ...]:
    """The flags whose values differ from the method's values, in words."""
    usual, flags = ALGORITHMS[run.algo].flags if run.algo in ALGORITHMS else {}, run.flags
    changed = [flag for flag, setting in usual.items() if flag in flags and flags[flag] != json_value(setting.words)]
    words = []
    for flag in changed + [flag for flag in WORDS if usual and flag not in usual and flags.get(flag)]:
        value = flags[flag]
        text = " ".join(map(str, value)) if isinstance(value, list) else PurePath(str(value)).name
        text = f"{value:g}" if isinstance(value, float) else text
        words.append(word(WORDS.get(flag, f"{SHORT.get(flag, flag.removeprefix('--'))} {{}}").format(text)))
    return tuple(words)


def standing(task: TaskRuns, setting: MethodRuns) -> tuple[int, float]:
    """Sorts settings by their mean over training, but one lucky run is behind three."""
    scores = [over_training(curve) for run in setting.counted if (curve := validation(run, task.sets)) is not None]
    return min(len(scores), FEWEST), sum(scores) / max(len(scores), 1)


def best_of_each_method(task: TaskRuns) -> list[MethodRuns]:
    """All settings; or, of more than MOST, of those that share a method and its own flags the best over training."""
    if len(task.methods) <= MOST:
        return [*task.methods]
    alike: dict[tuple, list[MethodRuns]] = defaultdict(list)
    for setting in task.methods:
        alike[setting.algo, setting.changed].append(setting)
    return [max(settings, key=lambda setting: standing(task, setting)) for settings in alike.values()]
