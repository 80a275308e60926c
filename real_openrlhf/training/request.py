"""A command line as a request for a run: its words, a config file's and a begun run's, and the flags that follow."""

import argparse
import os
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from real_openrlhf.base import run_files
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import PassThrough, did_you_mean, path_of
from real_openrlhf.base.secrets import BY_VARIABLE, KEY_VARIABLE, WANDB_KEY, hide
from real_openrlhf.flags.words import SHORTHANDS, as_typed, split_flags
from real_openrlhf.recipes.algorithms import ALGORITHMS, method_of
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.run import (
    MODEL,
    PLACES,
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
from real_openrlhf.training.inputs import file_flags, makers, row_count, with_absolute_paths

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
            near = did_you_mean(named, [path.parent.name for path in asked.runs_dir.glob(f"*/{run_files.RECORD}")])
            hint = near or "Name another, or give its flags."
            raise UserError(f"there is no run {asked.runs_dir / named} to continue. {hint.strip()}")
        pairs = (word.partition("=") for word in (*(words_of_run(asked.runs_dir / named) if named else ()), *typed))
        words = [SHORTHANDS.get(name, name) + equals + value for name, equals, value in pairs]
        namespace, rest = super().parse_known_args(words, namespace)
        namespace.by_name = self.by_name
        namespace.algo, *own = method_of("--algo", namespace.algo)
        namespace.openrlhf = [*own, *namespace.openrlhf]
        return namespace, rest


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
            every = ", ".join(sorted(named))
            raise UserError(f"set by --runs-dir, --run-name and --resume: {every}. Leave these flags out.")
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
                raise UserError(f"{path} is unfinished, with {told}. {ways} (of a script: RESUME=0).")
        return self

    @cached_property
    def rows(self) -> int | None:
        """Of its training sets, of files counted, else as published; None if unknown."""
        names = self.user.get(TRAINING) or file_flags(self.recipe, self.args.data_dir)[TRAINING].words
        counts = [row_count(Path(name)) for name in " ".join(names).split(",")]
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
        every = makers(self.recipe, self.args.data_dir, self.run.text(MODEL))
        return {path: make for path, make in every.items() if str(path) in read and not path.exists()}

    def made(self) -> "Request":
        """With all missing files."""
        for path, make in self.missing().items():
            if not path.exists():  # a task's files are made together
                make()
        return replace(self)  # its flags follow from these files
