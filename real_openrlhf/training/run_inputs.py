"""The inputs of a run: its command line as a request, the flags that follow, and the files that it reads.

Files are prepared sets, files of a task, or the user's own. This package makes missing files if it can.
"""

import argparse
import contextlib
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from real_openrlhf.base import run_files
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import PassThrough, path_of
from real_openrlhf.base.secrets import BY_VARIABLE, KEY_VARIABLE, REWARD, WANDB_KEY, hide
from real_openrlhf.base.user_files import absolute
from real_openrlhf.data.sources import SUFFIXES, TRAINING_SETS, is_hub_name, read_local
from real_openrlhf.flags.words import SHORTHANDS, as_typed, split_flags
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.run import (
    AGENT,
    MODEL,
    OBJECTIVE,
    PLACES,
    RECIPE,
    RUN_DIR,
    TENSORBOARD,
    TRAINING,
    VALIDATION,
    FlagValue,
    Recipe,
    Run,
    compose,
)
from real_openrlhf.runs import run_folder
from real_openrlhf.runs.run_record import changed_flags
from real_openrlhf.training import tiny_task
from real_openrlhf.training.tiny_task import task_folder

RUNS = Path("runs")

# `train --config FILE.toml`: options of `train` at its top, OpenRLHF's flags in a table [flags]; typed ones win


class WithConfig(PassThrough):
    """Puts the words of a resumed run and of --config before the typed words; a shorthand becomes OpenRLHF's flag."""

    by_name = True  # the name of a begun run is enough to continue it

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        only, typed = argparse.ArgumentParser(add_help=False, allow_abbrev=False), [*(args or ())]
        only.add_argument("--config", type=path_of)
        only.add_argument("--resume", action="store_true")
        only.add_argument("--runs-dir", type=path_of, default=RUNS)
        only.add_argument("--run-name")
        typed = [*words_of_config(only.parse_known_args(typed)[0].config), *typed]
        asked, others = only.parse_known_args(typed)
        named = self.by_name and asked.resume and asked.run_name
        if named and not {*others} - {"--dry-run"} and not (asked.runs_dir / named).exists():
            raise UserError(f"there is no run {asked.runs_dir / named} to continue. Name another, or give its flags.")
        pairs = (word.partition("=") for word in (*(words_of_run(asked.runs_dir / named) if named else ()), *typed))
        words = [SHORTHANDS.get(name, name) + equals + value for name, equals, value in pairs]
        return super().parse_known_args(words, namespace)


def words_of_run(folder: Path) -> list[str]:
    """With which the run began."""
    return run_folder.read(folder).get("words", []) if (folder / run_files.RECORD).exists() else []


def words_of_config(path: Path | None) -> list[str]:
    """The file as words of a command line."""
    if path is None:
        return []
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        flags = dict(content.pop("flags", {}))
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"--config {path} cannot be read: {error}") from error
    named = (*content.items(), *flags.items())  # apart: `algo` is an option, and the table of the flags `algo.*`
    return [word for name, value in named for word in _typed_as(name, value)]


def _typed_as(name: str, value: Any) -> list[str]:
    if isinstance(value, dict):  # `actor.adam.lr = 1e-4` is a table in a table in TOML
        return [word for key, inner in value.items() for word in _typed_as(f"{name}.{key}", inner)]
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", *map(str, value)] if isinstance(value, list) else [f"--{name}={value}"]


@dataclass(frozen=True)
class Request:
    args: argparse.Namespace
    recipe: Recipe
    user: dict[str, tuple[str, ...]]
    removed: list[str]
    stem: str
    folder: Path  # of a new run without a name: with TIME in place of the time
    resumed: Path | None
    secrets: dict[str, str]  # for the environment of the run's processes

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> "Request":
        recipe = RECIPES[args.recipe]
        given, removed = split_flags(args.openrlhf)
        if named := (PLACES - {TENSORBOARD}) & {*given, *removed}:
            raise UserError(f"{min(named)} is set by --runs-dir, --run-name and --resume. Leave it out.")
        if empty := [flag for flag in (MODEL, TRAINING, VALIDATION) if given.get(flag) == ("",)]:
            raise UserError(f"{empty[0]}: its value is missing. Give one, or leave it out.")
        flags, variables = dict(given), {}
        if (key := " ".join(flags.get(WANDB_KEY, ()))) not in ("", BY_VARIABLE):
            flags[WANDB_KEY], variables[KEY_VARIABLE] = (BY_VARIABLE,), key
        user = with_absolute_paths(flags, args.data_dir)
        seed = user.get("--train.seed") or recipe.flags["--train.seed"].words
        number = int(seed[0]) if seed[0].isdecimal() else seed[0]  # 007 is 7, as in the record
        stem = run_folder.run_stem(recipe.name, args.algo, number)
        folder = args.runs_dir / (args.run_name or f"{stem}-TIME")
        request = cls(args, recipe, user, removed, stem, folder, None, variables)
        return request.resuming() if args.resume else request

    def resuming(self) -> "Request":
        """The request with the run that --resume continues: the named one, else the newest unfinished one."""
        folder, name = self.args.runs_dir, self.args.run_name
        if name is not None:
            begun = (folder / name).is_dir() and not run_folder.is_unused(folder / name)
            return replace(self, resumed=folder / name) if begun else self
        unfinished = run_folder.unfinished(folder, self.stem)
        changes = {path: changed_flags(record, self.run) for path, record in unfinished.items()}
        if same := next((path for path, changed in changes.items() if not changed), None):
            return replace(self, resumed=same, folder=same)
        for path, changed in changes.items():
            if not run_folder.is_running(path):
                told = ", ".join(f"{flag} {old}, not {new}" for flag, (old, new) in changed.items())
                ways = f"Continue it with --run-name {path.name}, or start a new run without --resume"
                raise UserError(f"{path} is unfinished, with {told}. {ways}.")
        return self

    @cached_property
    def rows(self) -> int | None:
        """Of its training sets, of files counted, else as published; None if unknown."""
        names = self.user.get(TRAINING) or file_flags(self.recipe, self.args.data_dir)[TRAINING].words
        counts = [_row_count(Path(name)) for name in " ".join(names).split(",")]
        return None if None in counts else sum(count for count in counts if count)

    @cached_property
    def run(self) -> Run:
        """Resolved once; a change of the request, as of its folder, makes another."""
        inputs = file_flags(self.recipe, self.args.data_dir)
        folder, origin = Path(os.path.realpath(self.folder)), "run folder"
        launcher = {
            **inputs,
            RUN_DIR: FlagValue((str(folder),), origin, run_files.METRICS),
            TENSORBOARD: FlagValue((str(folder / "tensorboard"),), origin),
            "--ckpt.path": FlagValue((str(folder / run_files.CHECKPOINTS),), origin),
            "--ckpt.output_dir": FlagValue((str(folder / run_files.MODEL),), origin, "the final weights"),
        }
        if self.resumed:
            launcher["--ckpt.load_enable"] = FlagValue((), origin, "continue from the last checkpoint")
        return compose(self.recipe, ALGORITHMS[self.args.algo], self.user, self.removed, launcher, self.rows)

    @property
    def words(self) -> list[str]:
        """A command line that asks for the same run from any folder, without its place and without secrets."""
        folder, flags = str(self.args.data_dir.resolve()), [w for f, ws in self.user.items() for w in as_typed(f, ws)]
        removed = (f"--no-{flag.removeprefix('--')}" for flag in self.removed)
        words = ["--recipe", self.recipe.name, "--algo", self.args.algo, "--data-dir", folder, *flags, *removed]
        return hide(words)

    def missing(self) -> dict[Path, Callable[[], object]]:
        """Missing files that its flags read and this package can make: {path: the call that makes it}."""
        read = {self.run.text(flag) for flag in (MODEL, TRAINING, VALIDATION)}
        parts = ("model", "train.jsonl", "eval.jsonl")
        makers: dict[Path, Callable[[], object]] = {task_folder() / part: tiny_task.unpack for part in parts}
        for name in {*TRAINING_SETS, self.recipe.eval_data} - {tiny_task.NAME}:
            path = set_file(name, self.args.data_dir)
            makers[path] = partial(_make_set, name, path, self.run.text(MODEL))
        return {path: make for path, make in makers.items() if str(path) in read and not path.exists()}

    def made(self) -> "Request":
        """With all missing files."""
        for path, make in self.missing().items():
            if not path.exists():  # a task's files are made together
                make()
        return replace(self)  # its flags follow from these files


# Files


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


def _make_set(name: str, path: Path, tokenizer: str) -> None:
    from real_openrlhf.data import command  # the verifier takes a quarter of a second

    if name in TRAINING_SETS:
        command.prepare_training(name, path, tokenizer=tokenizer)
    else:
        command.prepare_benchmark(name, None, path)


def _row_count(path: Path) -> int | None:
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
