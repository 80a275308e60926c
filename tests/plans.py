"""What a run is told: its plan, as `train` composes it, and what the controller reads of its arguments."""

from pathlib import Path
from types import SimpleNamespace

from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import compose
from real_openrlhf.recipes.recipes import RECIPES

ON_GPUS = [name for name in RECIPES if name.startswith("qwen")]


def plan(recipe: str = "qwen7b", algo: str = "real", user=None, removed=(), rows=None):
    return compose(RECIPES[recipe], ALGORITHMS[algo], user or {}, removed, rows=rows)


def run_args(folder: Path | str = "", group_size=4, loss="real", real=None, **train) -> SimpleNamespace:
    settings = {"label_threshold": None, "uniform_groups": "drop", "objective": "real", "labels": None}
    return SimpleNamespace(
        algo=SimpleNamespace(real=SimpleNamespace(**(settings | (real or {})))),
        train=SimpleNamespace(**({"run_dir": str(folder), "hopeless_steps": 20, "hopeless": "fail"} | train)),
        actor=SimpleNamespace(policy_loss_type=loss),
        rollout=SimpleNamespace(n_samples_per_prompt=group_size),
    )
