"""Runs of several tests: flags, plans, arguments, the folder that a kill leaves, a file that a disk has changed."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.run import compose
from real_openrlhf.runs import run_folder

ON_GPUS = [name for name in RECIPES if name.startswith("qwen")]

# 64 rollouts a step in four updates
SIZES = ("--rollout.batch_size", "8", "--train.batch_size", "16", "--train.micro_batch_size", "8")
SIZES += ("--rollout.micro_batch_size", "16")
SMALL = (*SIZES, "--eval.n_samples_per_prompt", "1")

NO_EVALUATION = ("--no-eval.at_start", "--no-eval.at_end")
SHORT = (*SMALL, "--max-steps", "4", "--ckpt.save_steps", "2", "--eval.steps", "2", "--no-eval.at_start")
# 128 rollouts a step, so that few steps show that it learns
LEARNING = ("--steps", "2", "--ckpt.save_steps", "1", "--eval.steps", "2", "--eval.n_samples_per_prompt", "2")
LEARNING += ("--rollout.batch_size", "16", "--train.batch_size", "32", "--actor.adam.lr", "5e-4")


def run_flags(recipe: str = "qwen7b", algo: str = "real", user=None, removed=(), rows=None):
    """As `train` composes it."""
    return compose(RECIPES[recipe], ALGORITHMS[algo], user or {}, removed, rows=rows)


def run_args(folder: Path | str = "", group_size=4, real=None, kept=2, any_reward=False, **train) -> SimpleNamespace:
    """What the controller reads of its arguments."""
    settings = {"label_threshold": None, "truncated": "negative"} | (real or {})
    return SimpleNamespace(
        algo=SimpleNamespace(real=SimpleNamespace(**settings)),
        train=SimpleNamespace(**({"run_dir": str(folder), "batching": "whole_groups"} | train)),
        logger=SimpleNamespace(rollout_groups=kept),
        rollout=SimpleNamespace(n_samples_per_prompt=group_size),
        derived=SimpleNamespace(
            threshold=0.5 if settings["label_threshold"] is None else settings["label_threshold"],
            whole_groups=(train.get("batching", "whole_groups") == "whole_groups"),
            any_reward=any_reward,
        ),
    )


def as_killed(folder: Path, before: str = "") -> None:
    """The folder as a kill right after the last step leaves it, or one before that step's checkpoint was there."""
    if before:
        shutil.rmtree(folder / "checkpoints" / "_actor" / before)
    record = json.loads((folder / "run.json").read_text())
    run_folder.write(folder, record | {"status": "running", "finished": None})
    (folder / ".finished").unlink()
    assert "died after step" in run_folder.state(folder)["reason"]


def flip(path: Path) -> None:
    """One bit of the file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
