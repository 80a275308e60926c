"""Campaigns: the records and logged numbers of many runs in three files, small enough to commit (publish.py).

`campaign.json` has the entries that all records share, and of new campaigns the SHA-256 of every file that was read.
`runs.csv` has one row per run with the other entries, as JSON. `metrics.parquet` has one row per logged line, one
column per metric.

python examples/results/campaigns.py CAMPAIGN [CAMPAIGN ...] OUT    # writes the package's report of these campaigns

CAMPAIGN/PART has the runs that are named PART/...
"""

import csv
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import methods
import numpy as np
import pandas

from real_openrlhf.base.files import parsed
from real_openrlhf.recipes.run import flags_of
from real_openrlhf.report.read_runs import Run, read_runs, run_of, word
from real_openrlhf.runs.run_folder import LAST_STEP, PHASES

ABOUT, RUNS, METRICS = "campaign.json", "runs.csv", "metrics.parquet"
FORMAT = 1
LINE = ("run", "phase", "step")  # of a logged line; the other columns are metrics

methods.install()


def runs(paths: Iterable[Path], run_training_script: bool = True) -> list[Run]:
    """The runs of campaigns, of their parts, and of run folders; exits if something cannot be read.

    A run that `--train.hopeless end` stopped, a flag that is gone, keeps its last values until its planned end.
    """
    found, folders = [], []
    for path in paths:
        if is_campaign(path) or (not path.exists() and is_campaign(path.parent)):
            found += _runs_of_a_campaign(path, run_training_script)
        else:
            folders.append(path)
    others, skipped = read_runs(folders)
    if skipped:
        sys.exit(f"not read: {skipped}")
    return found + others


def _runs_of_a_campaign(folder: Path, run_training_script: bool) -> list[Run]:
    """Each run gets a path as if it had a folder."""
    part = "" if is_campaign(folder) else f"{folder.name}/"
    folder = folder.parent if part else folder
    (records_of, _), every = records(folder), lines(folder)
    every = every[every["phase"].isin(PHASES) & every["step"].between(0, LAST_STEP)]
    metrics = every.set_index([*LINE]).select_dtypes("number").rename(columns=word).groupby(level=[*LINE]).last()
    logged: dict[str, dict[str, pandas.DataFrame]] = {}
    for (run, phase), table in metrics.groupby(level=["run", "phase"]):
        logged.setdefault(run, {})[phase] = table.droplevel(["run", "phase"])
    names = {run.removeprefix(part): run for run in records_of if run.startswith(part)}
    if not names:
        sys.exit(f"the campaign {folder} has no runs {part}...")
    return [
        run_of(
            folder / Path(name).name,
            {**records_of[run], "name": name},
            _extended(records_of[run], logged.get(run, {})) if run_training_script else logged.get(run, {}),
        )
        for name, run in names.items()
    ]


def _extended(record: dict[str, Any], logged: dict[str, pandas.DataFrame]) -> dict[str, pandas.DataFrame]:
    flags = flags_of(record)
    planned = flags.get("--train.max_steps")
    stops = record.get("status") == "finished" and flags.get("--train.hopeless") == "end"
    if not stops or type(planned) is not int or not max(table.index[-1] for table in logged.values()) < planned:
        return logged
    found = {}
    for phase, table in logged.items():
        every = flags.get("--eval.steps") if phase == "eval" else 1
        every = every if type(every) is int and every > 0 else planned
        steps = np.unique([*table.index[table.index == 0], *range(every, planned + 1, every), planned])
        kept = table.columns.str.startswith(("real/", "ratio/"))  # means over the steps that a run made
        others = table.loc[:, ~kept].ffill().reindex(steps[steps >= table.index[0]], method="ffill")
        found[phase] = others.join(table.loc[:, kept])
    return found


def is_campaign(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def records(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Each run's record as its run.json had it, and the hashes of the files that the campaign was made of.

    Records that were slimmed have none; whole_records.csv has the hashes of the whole ones.
    """
    about = parsed((folder / ABOUT).read_bytes())
    if about.get("format") != FORMAT:
        raise ValueError(f"{folder / ABOUT} is not of format {FORMAT}")
    found: dict[str, dict[str, Any]] = {}
    for row in csv.DictReader(io.StringIO((folder / RUNS).read_text(encoding="utf-8"))):
        record = found[row["name"]] = {"name": row["name"]}
        record |= {key: {**value} if isinstance(value, dict) else value for key, value in about["common"].items()}
        for key, cell in [*row.items()][1:]:
            outer, slash, inner = key.partition("/")
            if cell and slash:
                record.setdefault(outer, {})[inner] = cell_value(cell)
            elif cell:
                record[key] = cell_value(cell)
    return found, about.get("sources", {})


def cell_value(cell: str) -> Any:
    """A cell of runs.csv is JSON, or a text that is none."""
    try:
        return parsed(cell)
    except ValueError:
        return cell


def lines(folder: Path) -> pandas.DataFrame:
    """All logged lines, each with its run; nan for a metric that the line lacks."""
    return pandas.read_parquet(folder / METRICS).dropna(subset=[*LINE]).astype({"step": "int64"})


def main(*words: str) -> int:
    from real_openrlhf.report.page import write

    if len(words) < 2:
        sys.exit(__doc__)
    print(write(runs(map(Path, words[:-1])), [], Path(words[-1])))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
