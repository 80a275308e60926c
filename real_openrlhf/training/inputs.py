"""The files that a run reads: prepared sets, files of the tiny task, or the user's own, by absolute path."""

import contextlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.secrets import REWARD
from real_openrlhf.base.user_files import absolute
from real_openrlhf.data.sources import SUFFIXES, TRAINING_SETS, is_hub_name, read_local
from real_openrlhf.recipes.run import AGENT, MODEL, OBJECTIVE, RECIPE, TRAINING, VALIDATION, FlagValue, Recipe
from real_openrlhf.training import tiny_task
from real_openrlhf.training.tiny_task import task_folder


def set_file(name: str, data_dir: Path, part: str = "train") -> Path:
    """The file of a set that this package makes; of the tiny task there are two parts."""
    return task_folder() / f"{part}.jsonl" if name == tiny_task.NAME else (data_dir / f"{name}.jsonl").resolve()


def training_set(name: str, data_dir: Path) -> Path:
    """The file of a set that has this name; a data set of the hub as it is; any other name is a path."""
    if name in (tiny_task.NAME, *TRAINING_SETS):
        return set_file(name, data_dir)
    return Path(name) if is_hub_name(name) else Path(name).expanduser().resolve()


def file_flags(recipe: Recipe, data_dir: Path) -> dict[str, FlagValue]:
    """The recipe's model, data and reward as flags, by absolute path: Ray's actors run in another directory."""
    reward = Path(__file__).resolve().parents[1] / "rewards" / "math_reward.py"
    model = str(task_folder() / "model") if recipe.model == tiny_task.NAME else recipe.model
    return {
        MODEL: FlagValue((model,), RECIPE),
        TRAINING: FlagValue((str(training_set(recipe.train_data, data_dir)),), RECIPE, recipe.train_data),
        VALIDATION: FlagValue((str(set_file(recipe.eval_data, data_dir, "eval")),), RECIPE, recipe.eval_data),
        REWARD: FlagValue((str(reward),), RECIPE, "1 for a correct response, 0 for an incorrect one"),
    }


def makers(recipe: Recipe, data_dir: Path, tokenizer: str) -> dict[Path, Callable[[], object]]:
    """The files that this package can make: {path: the call that makes it}."""
    parts = ("model", "train.jsonl", "eval.jsonl")
    calls: dict[Path, Callable[[], object]] = {task_folder() / part: tiny_task.unpack for part in parts}
    for name in {*TRAINING_SETS, recipe.eval_data} - {tiny_task.NAME}:
        path = set_file(name, data_dir)
        calls[path] = partial(_make_set, name, path, tokenizer)
    return calls


def _make_set(name: str, path: Path, tokenizer: str) -> None:
    from real_openrlhf.data import command  # the verifier takes a quarter of a second

    if name in TRAINING_SETS:
        command.prepare_training(name, path, tokenizer=tokenizer)
    else:
        command.prepare_benchmark(name, None, path)


def row_count(path: Path) -> int | None:
    """Rows of a training set: of a file counted, else as published; None if unknown."""
    if not path.is_file():
        if path == training_set(tiny_task.NAME, Path()):
            return tiny_task.TRAIN_PROMPTS
        published = TRAINING_SETS.get(path.stem) if path.suffix == ".jsonl" else None
        return published.rows if published else None
    with contextlib.suppress(OSError, ValueError, UserError):  # of a broken file, which its own check reports
        if path.suffix == ".jsonl":
            return len(path.read_bytes().splitlines())
        if path.suffix in SUFFIXES:
            return sum(1 for _ in read_local(path).rows)
    return None


def with_absolute_paths(flags: Mapping[str, tuple[str, ...]], data_dir: Path) -> dict[str, tuple[str, ...]]:
    """The user's models, sets and files by absolute path: Ray's actors run in other directories."""

    def sets(names: str) -> str:
        return ",".join(str(training_set(name.strip(), data_dir)) for name in names.split(","))

    def scripts(names: str) -> str:  # files or URLs
        return ",".join(os.path.realpath(os.path.expanduser(n)) if n.endswith(".py") else n for n in names.split(","))

    def files(names: str) -> str:
        return ",".join(n if is_hub_name(n) else os.path.realpath(os.path.expanduser(n)) for n in names.split(","))

    def model(name: str) -> str:
        return name if is_hub_name(name, "model") else os.path.realpath(os.path.expanduser(name))

    paths = {MODEL: model, TRAINING: sets, VALIDATION: files, REWARD: scripts, AGENT: scripts, OBJECTIVE: absolute}
    return {flag: tuple(map(paths.get(flag, str), words)) for flag, words in flags.items()}
