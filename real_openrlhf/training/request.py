"""A parsed command line of `train`, and the plan that follows from it and from the run's folder."""

import argparse
import os
from collections.abc import Container
from dataclasses import dataclass, replace
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import Plan, compose
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.setting import Recipe, Setting
from real_openrlhf.runs import run_folder
from real_openrlhf.training import run_inputs
from real_openrlhf.training.checks import flag_checks

SHORTHANDS = {
    "model": run_inputs.MODEL,
    "data": run_inputs.TRAINING,
    "seed": "--train.seed",
    "max-steps": "--train.max_steps",
    "gpus": "--actor.num_gpus_per_node",
    "nodes": "--actor.num_nodes",
}
OPTIONS = [f"--{name}" for name in (*SHORTHANDS, "recipe", "algo", "dry-run", "resume", "run-name", "runs-dir")]


@dataclass(frozen=True)
class Request:
    args: argparse.Namespace
    recipe: Recipe
    user: dict[str, tuple[str, ...]]
    removed: list[str]
    stem: str
    resumed: Path | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Request":
        recipe = RECIPES[args.recipe]
        flags, removed = flag_checks.split_flags(args.openrlhf)
        user: dict[str, tuple[str, ...]] = {}
        for name, flag in SHORTHANDS.items():
            value = getattr(args, name.replace("-", "_"))
            if value is not None and flag in flags:
                raise UserError(f"--{name} and {flag} say the same thing. Give one of them.")
            if value is not None:
                user[flag] = (str(run_inputs.by_name(name, value, args.data_dir)),)
        user |= run_inputs.found_anywhere(flags)
        seed = user.get("--train.seed") or recipe.settings["--train.seed"].words
        stem = run_folder.run_stem(recipe.name, args.algo, seed[0])
        resumed = run_folder.to_resume(args.runs_dir, stem, args.run_name) if args.resume else None
        return cls(args, recipe, user, removed, stem, resumed)

    def plan(self, folder: Path | None = None) -> Plan:
        """The run's flags; without a folder, for the folder that a run would get."""
        folder = folder or self.resumed or self.args.runs_dir / (self.args.run_name or f"{self.stem}-TIME")
        inputs = run_inputs.settings(self.recipe, self.args.data_dir)
        launcher = {**inputs, **_folder_flags(Path(os.path.realpath(folder)), self.resumed is not None)}
        data = " ".join(self.user.get(run_inputs.TRAINING, inputs[run_inputs.TRAINING].words))
        algorithm, rows = ALGORITHMS[self.args.algo], run_inputs.rows(Path(data))
        return compose(self.recipe, algorithm, self.user, self.removed, launcher, rows)

    def without(self, wrong: Container[str]) -> "Request":
        """The request without its wrong flags, so that the other checks go on with the recipe's values."""
        user = {flag: words for flag, words in self.user.items() if flag not in wrong}
        return replace(self, user=user, removed=[flag for flag in self.removed if flag not in wrong])

    def missing(self) -> list[run_inputs.Prepared]:
        return run_inputs.missing(self.recipe, self.args.data_dir, self.plan().flags, self.args.model)

    def make_missing(self) -> None:
        if not self.missing():
            return
        with run_inputs.made_once():
            for file in self.missing():
                if not file.path.exists():  # the tiny task's files are made together
                    file.make(self.plan().text(run_inputs.MODEL))


def _folder_flags(folder: Path, resumed: bool) -> dict[str, Setting]:
    origin = "run folder"
    flags = {
        "--train.run_dir": Setting((str(folder),), origin, "metrics.jsonl"),
        "--logger.tensorboard_dir": Setting((str(folder / "tensorboard"),), origin),
        "--ckpt.path": Setting((str(folder / "checkpoints"),), origin),
        "--ckpt.output_dir": Setting((str(folder / "model"),), origin, "the final weights"),
    }
    if resumed:
        flags["--ckpt.load_enable"] = Setting((), origin, "continue from the last checkpoint")
    return flags
