"""Publish runs as a campaign: small enough to commit, without paths of this machine, of committed code only."""

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from real_openrlhf.base import ownership
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import parsed, sha256, write_json, write_text
from real_openrlhf.report.read_runs import (
    ABOUT,
    FORMAT,
    LINE,
    METRICS,
    RUNS,
    campaign_records,
    cell_value,
    is_campaign,
)
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
    write(out, records, lines, sources)


def published(out: Path) -> set[str]:
    """The names of the runs that are published there."""
    _, sources = campaign_records(out) if is_campaign(out) else ({}, {})
    return {name.partition("/")[0] for name in sources}


def refuse_now(out: Path, runs: Path) -> None:
    """Raise before the training if `publish` would raise after it; `runs` is the folder of the run folders."""
    _refuse_loss(out, {f"{path.parent.name}/{path.name}": sha256(path) for path in runs.glob("*/*.json*")})
    if why := irreproducible(code()):
        raise UserError(
            f"--publish: a run made now {why}, so nobody could get that code back. Commit the changes (`git status` "
            "names them) or put them aside with `git stash`, then start again."
        )


def _refuse_loss(out: Path, sources: Mapping[str, str]) -> None:
    _, before = campaign_records(out) if is_campaign(out) else ({}, {})
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


def refuse_foreign(out: Path) -> None:
    ours = ownership.has_keys(out / ABOUT, "sources")
    ownership.refuse_foreign("--publish", (out / name for name in (ABOUT, RUNS, METRICS)), ours)


def write(
    out: Path, records: Mapping[str, dict], lines: Mapping[str, Sequence[dict]], sources: Mapping[str, str]
) -> None:
    """Write each run's record and logged lines; `sources` are hashes of the files behind them."""
    cells = {run: dict(_cells(record)) for run, record in records.items()}
    keys = dict.fromkeys(key for found in cells.values() for key in found)
    varied = [key for key in keys if len({found.get(key) for found in cells.values()}) > 1]
    common: dict[str, Any] = {}
    for (outer, inner), cell in next(iter(cells.values())).items():
        if (outer, inner) not in varied:
            place = common if inner is None else common.setdefault(outer, {})
            place[outer if inner is None else inner] = cell_value(cell)
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["name", *("/".join(filter(None, key)) for key in varied)])
    rows.writerows([run, *(found.get(key, "") for key in varied)] for run, found in cells.items())
    refuse_foreign(out)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / ABOUT, {"sources": {}})  # after an interrupt the files are known as ours, and read by nobody
    _write_lines(out / METRICS, lines)
    write_text(out / RUNS, [table.getvalue()])
    write_json(out / ABOUT, {"format": FORMAT, "common": common, "sources": dict(sorted(sources.items()))})


def _cells(record: Mapping[str, Any]) -> Iterable[tuple[tuple[str, str | None], str]]:
    """((key, key of a dictionary there), value as JSON); a text that is no JSON stands without quotes."""
    for key, value in record.items():
        inner = {(key, name): item for name, item in value.items()} if isinstance(value, dict) else {}
        for place, item in (inner or {(key, None): value}).items():
            bare = isinstance(item, str) and item and cell_value(item) == item
            if place != ("name", None):
                yield place, item if bare else json.dumps(item, ensure_ascii=False)


def _write_lines(path: Path, lines: Mapping[str, Sequence[dict]]) -> None:
    import pyarrow
    import pyarrow.parquet

    every = [{**line, "run": run} for run, rows in lines.items() for line in rows]
    names = sorted({key for line in every for key in line} - {*LINE})
    kinds = dict(zip(LINE, (pyarrow.string(), pyarrow.string(), pyarrow.int64()), strict=True))
    fields = [(name, kinds.get(name, pyarrow.float64())) for name in (*LINE, *names)]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    table = pyarrow.Table.from_pylist(every, pyarrow.schema(fields))
    pyarrow.parquet.write_table(table, draft, compression="zstd", compression_level=19)
    draft.replace(path)
