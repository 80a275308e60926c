"""Publish runs as a campaign: small enough to commit, without paths of this machine, of committed code only."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import parsed, sha256
from real_openrlhf.report import campaign
from real_openrlhf.runs.provenance import code, irreproducible
from real_openrlhf.training.tasks.tiny_model import cache_folder

# Beginnings of the names of all metrics that results and maps read.
COMPACT = tuple(
    """
    phase step eval_ entropy_loss ppo_kl ppo_clip_ratio actor_grad_norm update/clipped_share update/ratio_max
    rollout/pass_rate rollout/solve_all rollout/solve_none rollout/reward_mean rollout/entropy
    rollout/response_length_mean rollout/response_length_right rollout/response_length_wrong
    rollout/truncated_right rollout/truncated_wrong
    real/loss real/score_std real/score_abs_max real/weight_ real/mixed_groups timing/step_total""".split()
)


def publish(folders: Iterable[Path], out: Path, compact: bool = False) -> None:
    """Write records without this machine's paths, and every logged number; with `compact` only those of COMPACT."""
    records: dict[str, dict] = {}
    lines: dict[str, list[dict]] = {}
    sources: dict[str, str] = {}
    for folder in folders:
        record = (folder / "run.json").read_text(encoding="utf-8")
        for here, there in ((str(folder.parent), "runs"), (str(cache_folder()), "CACHE"), (f"{Path.cwd()}/", "")):
            record = record.replace(here, there)
        records[folder.name] = parsed(record)
        if why := irreproducible(records[folder.name]):
            raise UserError(
                f"{folder} {why}, so nobody can get that code back, and nothing is published. Commit the changes "
                "(`git status` names them), then make the runs again in another --out."
            )
        lines[folder.name] = [*_logged(folder / "metrics.jsonl", compact)]
        sources |= {f"{folder.name}/{name}": sha256(folder / name) for name in ("run.json", "metrics.jsonl")}
    _refuse_loss(out, sources)
    campaign.write(out, records, lines, sources)


def refuse_now(out: Path, runs: Path) -> None:
    """Raise before the training if `publish` would raise after it; `runs` is the folder of the run folders."""
    _refuse_loss(out, {f"{path.parent.name}/{path.name}": sha256(path) for path in runs.glob("*/*.json*")})
    if why := irreproducible(code()):
        raise UserError(
            f"--publish: a run made now {why}, so nobody could get that code back. Commit the changes (`git status` "
            "names them) or put them aside with `git stash`, then start again."
        )


def _refuse_loss(out: Path, sources: Mapping[str, str]) -> None:
    _, before = campaign.records(out) if campaign.is_campaign(out) else ({}, {})
    if lost := sorted(name for name, digest in before.items() if sources.get(name) != digest):
        raise UserError(
            f"{out} has {len(lost)} files of other runs, such as {lost[0]}: published runs are never overwritten. "
            f"Give another --publish, or remove {out} and commit that, if new runs take its place."
        )


def _logged(path: Path, compact: bool) -> Iterable[dict]:
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            return  # a kill cut off the last line
        numbers = {key: value for key, value in line.items() if key == "phase" or type(value) in (int, float)}
        yield {key: value for key, value in numbers.items() if key.startswith(COMPACT)} if compact else numbers
