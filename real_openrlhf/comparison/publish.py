"""A copy of runs that is small enough to commit, and says nothing of the machine that made them."""

import json
from collections.abc import Iterable
from pathlib import Path

from real_openrlhf.errors import UserError
from real_openrlhf.files import write_json, write_jsonl
from real_openrlhf.runs.provenance import code, irreproducible
from real_openrlhf.training.tasks.tiny_model import cache_folder

DIGITS = 6  # significant ones of a logged number
COMPACT_DIGITS = 4
# What maps and predictions read, by the beginning of a name.
COMPACT = (
    *("phase", "step", "eval_", "entropy_loss", "ppo_kl", "ppo_clip_ratio", "actor_grad_norm"),
    *("update/clipped_share", "update/ratio_max"),
    *(
        "rollout/pass_rate",
        "rollout/solve_all",
        "rollout/solve_none",
        "rollout/reward_mean",
        "rollout/response_length_mean",
    ),
    *("real/loss", "real/score_std", "real/score_abs_max", "real/weight_", "real/mixed_groups"),
)


def publish(folders: Iterable[Path], out: Path, compact: bool = False) -> None:
    """run.json and metrics.jsonl of every run, with paths that mean something elsewhere; compact, the most of it."""
    folders = list(folders)
    for folder in folders:
        if why := irreproducible(json.loads((folder / "run.json").read_text())):
            raise UserError(
                f"{folder} {why}, so nobody can get that code back, and nothing is published. Commit the changes "
                "(`git status` names them), then make the runs again in another --out."
            )
    for folder in folders:
        path = out / "runs" / folder.name
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "run.json", json.loads(_portable((folder / "run.json").read_text(), folder)))
        lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
        write_jsonl(path / "metrics.jsonl", (_line(line, compact) for line in lines))


def refuse_now() -> None:
    """Before hours of training, and not after them."""
    if why := irreproducible(code()):
        raise UserError(
            f"--publish: a run made now {why}, so nobody could get that code back. Commit the changes (`git status` "
            "names them) or put them aside with `git stash`, then start again."
        )


def _portable(text: str, folder: Path) -> str:
    cache = str(cache_folder())
    for here, there in ((str(folder.parent), "runs"), (cache, "CACHE"), (f"{Path.cwd()}/", "")):
        text = text.replace(here, there)
    return text


def _line(line: dict, compact: bool) -> dict:
    kept = {key: value for key, value in line.items() if key.startswith(COMPACT)} if compact else line
    digits = COMPACT_DIGITS if compact else DIGITS
    return {key: float(f"{value:.{digits}g}") if isinstance(value, float) else value for key, value in kept.items()}
