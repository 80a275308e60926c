"""A campaign: the records and logged numbers of many runs in three files.

`campaign.json` has the entries that all records share, and the SHA-256 of every file that was read. `runs.csv` has one
row per run with the other entries. `metrics.parquet` has one row per logged line, one column per metric.
"""

import contextlib
import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from real_openrlhf.base import ownership
from real_openrlhf.base.files import parsed, read_bytes, write_json, write_text

if TYPE_CHECKING:
    import pandas

ABOUT, RUNS, METRICS = "campaign.json", "runs.csv", "metrics.parquet"
FORMAT = 1
PLACE = ("run", "phase", "step")  # of a logged line; the other columns are metrics


def is_campaign(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def refuse_foreign(folder: Path) -> None:
    ours = False
    with contextlib.suppress(OSError, ValueError):
        ours = "sources" in parsed(read_bytes(folder / ABOUT))
    ownership.refuse_foreign("--publish", (folder / name for name in (ABOUT, RUNS, METRICS)), ours)


def write(
    folder: Path, records: Mapping[str, dict], lines: Mapping[str, Sequence[dict]], sources: Mapping[str, str]
) -> None:
    """Write each run's record and logged lines; `sources` are hashes of the files behind them."""
    flat = {run: _flat(record) for run, record in records.items()}
    keys = [key for key in dict.fromkeys(key for record in flat.values() for key in record) if key != "name"]
    said = {key: {_text(record[key]) if key in record else None for record in flat.values()} for key in keys}
    varied = [key for key in keys if len(said[key]) > 1]
    common = {key: next(iter(flat.values()))[key] for key in keys if key not in varied}
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(["name", *varied])
    for run, record in flat.items():
        rows.writerow([run, *(_cell(record[key]) if key in record else "" for key in varied)])
    refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / ABOUT, {"sources": {}})  # after an interrupt the files are known as ours, and read by nobody
    _write_lines(folder / METRICS, lines)
    write_text(folder / RUNS, [table.getvalue()])
    write_json(folder / ABOUT, {"format": FORMAT, "common": _nested(common), "sources": dict(sorted(sources.items()))})


def records(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Each run's record as its run.json had it, and the hashes of the files that the campaign was made of."""
    about = parsed(read_bytes(folder / ABOUT))
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"{ABOUT} is not of format {FORMAT}")
    common, sources = about.get("common"), about.get("sources")
    if not isinstance(common, dict) or not isinstance(sources, dict):
        raise ValueError(f"{ABOUT} lacks the key `common` or `sources`")
    found: dict[str, dict[str, Any]] = {}
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(folder / RUNS).decode())))
    except csv.Error as error:
        raise ValueError(f"{RUNS} is broken: {error}") from error
    for row in rows:
        if None in row or None in row.values() or not row.get("name"):
            raise ValueError(f"{RUNS} has a row with more or fewer cells than its header, or has no name")
        varied = {key: _value(cell) for key, cell in row.items() if cell != "" and key != "name"}
        found[row["name"]] = _nested({"name": row["name"], **_flat(common), **varied})
    return found, sources


def lines(folder: Path) -> "pandas.DataFrame":
    """All logged lines, each with its run; nan for a metric that the line lacks."""
    import pandas
    import pyarrow

    try:
        found = pandas.read_parquet(io.BytesIO(read_bytes(folder / METRICS)))
        return found.dropna(subset=[*PLACE]).astype({"step": "int64"})
    except (pyarrow.ArrowException, KeyError, ValueError, OSError) as error:
        raise ValueError(f"{METRICS} is broken: {error}") from error


def _write_lines(path: Path, lines: Mapping[str, Sequence[dict]]) -> None:
    import pyarrow
    import pyarrow.parquet

    every = [{**line, "run": run} for run, rows in lines.items() for line in rows]
    names = sorted({key for line in every for key in line} - {*PLACE})
    kinds = dict(zip(PLACE, (pyarrow.string(), pyarrow.string(), pyarrow.int64()), strict=True))
    fields = [(name, kinds.get(name, pyarrow.float64())) for name in (*PLACE, *names)]
    table = pyarrow.Table.from_pylist(every, pyarrow.schema(fields))
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    pyarrow.parquet.write_table(table, draft, compression="zstd", compression_level=19)
    draft.replace(path)


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    """`{"flags": {"--x": 1}}` -> `{"flags/--x": 1}`, one level deep; deeper dictionaries stay values."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        inner = value if isinstance(value, dict) else {}
        flat |= {f"{key}/{name}": item for name, item in inner.items()} or {key: value}
    return flat


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for key, value in flat.items():
        outer, slash, name = key.partition("/")
        if slash:
            record.setdefault(outer, {})[name] = value
        else:
            record[outer] = value
    return record


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cell(value: object) -> str:
    """The value as JSON; a text that JSON readers cannot parse is written without quotes."""
    return value if isinstance(value, str) and _value(value) == value and value else _text(value)


def _value(cell: str) -> Any:
    try:
        return parsed(cell)
    except ValueError:
        return cell
