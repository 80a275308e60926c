"""Publish runs as a campaign: small enough to commit, without paths of this machine, of committed code only.

python examples/results/publish.py RUNS OUT [--compact]

RUNS is a folder of run folders. Runs that were interrupted are left out, because their records change when they go on.
--compact keeps only what tables and figures read. What was published is added to, and never overwritten.
"""

import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns import ABOUT, FORMAT, LINE, METRICS, RUNS, cell_value, is_campaign, records

from real_openrlhf.base.files import parsed, sha256, write_json, write_text
from real_openrlhf.base.old_names import METRICS as CURRENT
from real_openrlhf.runs.provenance import DIRTY
from real_openrlhf.runs.run_folder import record_ending, state
from real_openrlhf.training.tiny_task import cache_folder

# Beginnings of the names of all metrics that tables and figures read
COMPACT = tuple(
    """
    phase step eval_ entropy_loss ppo_kl kl_old ppo_clip_ratio update/frac_clipped rollout/pass_rate
    rollout/reward_mean rollout/entropy rollout/frac_all_correct rollout/response_length_mean
    real/score_std real/weight_""".split()
)
OWN_FOLDERS = ("--train.run_dir", "--ckpt.path", "--ckpt.output_dir", "--logger.tensorboard_dir")


def publish(folders: Iterable[Path], out: Path, compact: bool = False) -> None:
    """Write records without this machine's paths, and every logged number; with `compact` only those of COMPACT."""
    found: dict[str, dict] = {}
    lines: dict[str, list[dict]] = {}
    sources: dict[str, str] = {}
    for folder in folders:
        record = (folder / "run.json").read_text(encoding="utf-8")
        for here, there in ((str(folder.parent), "runs"), (str(cache_folder()), "CACHE"), (f"{Path.cwd()}/", "")):
            record = record.replace(here, there)
        found[folder.name] = slim(parsed(record)) if compact else parsed(record)
        if why := irreproducible(found[folder.name]):
            sys.exit(f"{folder} {why}: nobody can get that code back. Commit the changes, then make the runs again.")
        lines[folder.name] = [*_logged(folder / "metrics.jsonl", compact)]
        sources |= {f"{folder.name}/{name}": sha256(folder / name) for name in ("run.json", "metrics.jsonl")}
    _, before = records(out) if is_campaign(out) else ({}, {})
    if is_campaign(out) and not before:
        sys.exit(f"{out} is a slim record, to which nothing can be added. Give another OUT.")
    if lost := sorted(name for name, digest in before.items() if sources.get(name) != digest):
        sys.exit(f"{out} has {len(lost)} files of other runs, such as {lost[0]}. Give another OUT, or remove {out}.")
    write(out, found, lines, sources)


def slim(record: dict) -> dict:
    """Without the command, which the flags say, and the names of the run's own folders."""
    flags = {flag: value for flag, value in record["flags"].items() if flag not in OWN_FOLDERS}
    return {key: value for key, value in record.items() if key != "command"} | {"flags": flags}


def irreproducible(record: Mapping) -> str | None:
    """Why nobody can get back the code that made this run, or None."""
    for part in (record, *record.get("earlier_code", ())):
        version = str(part.get("code_version"))
        if version.endswith(DIRTY):
            return f"ran code that no commit has ({version})"
        if not re.fullmatch("[0-9a-f]{40,64}", str(part.get("tree") or part.get("package_sha256"))):
            return f"does not name the tree that it ran ({part.get('no_tree', 'an earlier version made it')})"
    return None


def _logged(path: Path, compact: bool) -> Iterable[dict]:
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            return  # a kill cut off the last line
        numbers = {key: value for key, value in line.items() if key == "phase" or type(value) in (int, float)}
        yield (
            {key: value for key, value in numbers.items() if CURRENT.get(key, key).startswith(COMPACT)}
            if compact
            else numbers
        )


def write(
    out: Path, found: Mapping[str, dict], lines: Mapping[str, Sequence[dict]], sources: Mapping[str, str]
) -> None:
    """Write each run's record and logged lines; `sources` are hashes of the files behind them."""
    cells = {run: dict(_cells(record)) for run, record in found.items()}
    keys = dict.fromkeys(key for own in cells.values() for key in own)
    varied = [key for key in keys if len({own.get(key) for own in cells.values()}) > 1]
    common: dict[str, Any] = {}
    for (outer, inner), cell in next(iter(cells.values())).items():
        if (outer, inner) not in varied:
            place = common if inner is None else common.setdefault(outer, {})
            place[outer if inner is None else inner] = cell_value(cell)
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["name", *("/".join(filter(None, key)) for key in varied)])
    rows.writerows([run, *(own.get(key, "") for key in varied)] for run, own in cells.items())
    out.mkdir(parents=True, exist_ok=True)
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
    _save(pyarrow.Table.from_pylist(every, pyarrow.schema(fields)), path)


def _save(table: Any, path: Path) -> None:
    """Bytes of equal rank stand together, which halves what is left of measured numbers."""
    import pyarrow.parquet

    numbers = [field.name for field in table.schema if str(field.type) == "double"]
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    pyarrow.parquet.write_table(
        table,
        draft,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.column_names if name not in numbers],
        use_byte_stream_split=numbers,
    )
    draft.replace(path)


def main(*words: str) -> int:
    places = [Path(word) for word in words if word != "--compact"]
    if len(places) != 2:
        sys.exit(__doc__)
    ended = []
    for folder in sorted(path.parent for path in places[0].glob("*/run.json")):
        record_ending(folder)  # else the record of a run that nobody watched still says running
        record = state(folder, parsed((folder / "run.json").read_bytes()))
        if record["status"] != "running" and not str(record.get("reason")).startswith("interrupted"):
            ended.append(folder)
        else:
            print(f"not published, because it has not ended: {folder}")
    publish(ended, places[1], "--compact" in words)
    print(f"{len(ended)} runs published: {places[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
