"""The files that a run reads: sets prepared by name, a tiny task, or the user's own; and making what is missing."""

import argparse
import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from real_openrlhf.algorithm.lookup import absolute, file_of
from real_openrlhf.base.files import parsed
from real_openrlhf.recipes.plan import AGENT, LABELS, OBJECTIVE, REWARD
from real_openrlhf.recipes.recipes import TRAINING_ROWS
from real_openrlhf.recipes.setting import RECIPE, Recipe, Setting
from real_openrlhf.training.tasks import gguf_model, smollm2
from real_openrlhf.training.tasks.tasks import TASKS, default, prepare
from real_openrlhf.training.tasks.tiny_model import cache_folder

MODEL, TRAINING, VALIDATION = "--actor.model_name_or_path", "--data.prompt_dataset", "--eval.dataset"


@dataclass(frozen=True)
class Prepared:
    """A file that this package can make."""

    name: str
    path: Path

    def make(self, model: str) -> None:
        if self.path == smollm2.folder():
            smollm2.prepare()
        elif gguf_model.is_one(self.name):
            gguf_model.prepare(Path(self.name))
        elif self.name in TASKS:
            prepare(default(self.name))
        else:
            from real_openrlhf.data import command

            parser = argparse.ArgumentParser()
            command.configure(parser)
            tokenizer = ["--tokenizer", model] if self.name in TRAINING_ROWS else []
            command.run(parser.parse_args([self.name, "--out", str(self.path), *tokenizer]))


@contextlib.contextmanager
def made_once() -> Iterator[None]:
    """Several commands may start together: one makes what is missing, and the others find it there."""
    cache_folder().mkdir(parents=True, exist_ok=True)
    with open(cache_folder() / ".making", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def by_name(shorthand: str, value: object, data_dir: Path) -> object:
    """What --model or --data calls by name, as a path; anything else as it is."""
    if shorthand == "data":
        return training_set(str(value), data_dir)
    if shorthand == "model" and gguf_model.is_one(str(value)):
        return gguf_model.folder(Path(str(value)).expanduser())
    return smollm2.folder() if (shorthand, value) == ("model", smollm2.NAME) else value


def training_set(name: str, data_dir: Path) -> Path:
    """A set by name, or any other path as it is."""
    if name in TASKS:
        return default(name).folder() / "train.jsonl"
    return (data_dir / f"{name}.jsonl" if name in TRAINING_ROWS else Path(name).expanduser()).resolve()


def validation_set(name: str, data_dir: Path) -> Path:
    return default(name).folder() / "eval.jsonl" if name in TASKS else (data_dir / f"{name}.jsonl").resolve()


def settings(recipe: Recipe, data_dir: Path) -> dict[str, Setting]:
    """The recipe's model, data and reward as flags, by absolute path: Ray's actors run in another directory."""
    reward = Path(__file__).resolve().parents[1] / "rewards" / f"{recipe.reward}.py"
    model = str(default(recipe.model).folder() / "model") if recipe.model in TASKS else recipe.model
    return {
        MODEL: Setting((model,), RECIPE),
        TRAINING: Setting((str(training_set(recipe.train_data, data_dir)),), RECIPE, recipe.train_data),
        VALIDATION: Setting((str(validation_set(recipe.eval_data, data_dir)),), RECIPE, recipe.eval_data),
        REWARD: Setting((str(reward),), RECIPE, "1 for a right answer, 0 for a wrong one"),
    }


def missing(recipe: Recipe, data_dir: Path, flags: Mapping[str, Setting], model: str | None = None) -> list[Prepared]:
    """Missing files that these flags read and this package can make; `model` is what the user called it."""
    parts = ("model", "train.jsonl", "eval.jsonl")
    names = {default(name).folder() / part: name for name in TASKS for part in parts}
    names |= {training_set(name, data_dir): name for name in TRAINING_ROWS}
    names |= {validation_set(recipe.eval_data, data_dir): recipe.eval_data, smollm2.folder(): smollm2.NAME}
    if model and gguf_model.is_one(model):
        names[gguf_model.folder(Path(model).expanduser())] = model
    read = {word for flag in (MODEL, TRAINING, VALIDATION) if flag in flags for word in flags[flag].words}
    return [Prepared(name, path) for path, name in names.items() if str(path) in read and not path.exists()]


def config_of(model: Path) -> dict:
    """Of a model that is here; nothing of others."""
    with contextlib.suppress(OSError, ValueError):
        return dict(parsed((model / "config.json").read_bytes()))
    return {}


def rows(path: Path) -> int | None:
    """Rows of a training set: counted where the file is there, else as published."""
    if os.path.isfile(path):
        with contextlib.suppress(OSError), open(path, "rb") as lines:
            return sum(1 for _ in lines)
    prompts = {training_set(name, Path()): default(name).train_prompts for name in TASKS}
    return prompts.get(path) or TRAINING_ROWS.get(path.stem)


def local_files(flags: Mapping[str, Setting]) -> Iterable[Path]:
    """The data files whose hashes a run keeps."""
    for flag in (TRAINING, VALIDATION):
        if flag in flags:
            yield from (Path(name) for name in flags[flag].text.split(",") if Path(name).is_file())


def found_anywhere(flags: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The user's own files by absolute path: Ray's actors run in other directories."""
    found = dict(flags)
    for flag in {OBJECTIVE, LABELS} & found.keys():
        found[flag] = tuple(map(absolute, found[flag]))
    if AGENT in found:
        found[AGENT] = tuple(str(Path(path).expanduser().resolve()) for path in found[AGENT])
    if REWARD in found:  # files or URLs, with commas between them
        each = ",".join(found[REWARD]).split(",")
        found[REWARD] = (
            ",".join(str(Path(one).expanduser().resolve()) if one.endswith(".py") else one for one in each),
        )
    return found


def objective_files(flags: Mapping[str, Setting]) -> Iterable[Path]:
    """The user's own objective, rule for labels and agent, whose hashes a run keeps too."""
    paths = {file_of(flags[flag].text) for flag in (OBJECTIVE, LABELS) if flag in flags}
    paths |= {Path(word) for word in flags[AGENT].words} if AGENT in flags else set()
    return [path for path in paths if path is not None and path.is_file()]
