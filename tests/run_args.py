"""What the controller reads of a run's arguments, for its log, its kept groups and its end."""

from pathlib import Path
from types import SimpleNamespace


def run_args(folder: Path | str = "", group_size=4, loss="real", real=None, **train) -> SimpleNamespace:
    settings = {"label_threshold": None, "uniform_groups": "drop", "objective": "real", "labels": None}
    return SimpleNamespace(
        algo=SimpleNamespace(real=SimpleNamespace(**(settings | (real or {})))),
        train=SimpleNamespace(**({"run_dir": str(folder), "hopeless_steps": 20, "hopeless": "fail"} | train)),
        actor=SimpleNamespace(policy_loss_type=loss),
        rollout=SimpleNamespace(n_samples_per_prompt=group_size),
    )
