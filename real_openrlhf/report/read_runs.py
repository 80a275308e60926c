"""Read run folders, campaigns and TensorBoard logs as `Run`; a folder that cannot be read is listed with a reason.

A campaign has the records and logged numbers of many runs in three files. `campaign.json` has the entries that all
records share, and the SHA-256 of every file that was read. `runs.csv` has one row per run with the other entries, as
JSON. `metrics.parquet` has one row per logged line, one column per metric.
"""

import csv
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from real_openrlhf.base.errors import UserError, first_line, plain
from real_openrlhf.base.files import parsed, read_bytes
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.runs.run_folder import as_it_is

if TYPE_CHECKING:
    import pandas

ABOUT, RUNS, METRICS = "campaign.json", "runs.csv", "metrics.parquet"
FORMAT = 1
LINE = ("run", "phase", "step")  # of a logged line of a campaign; the other columns are metrics
LAST_STEP, LARGEST, MOST_STEPS = 10**12, 1e100, 10**6
LABEL = 120  # letters of a name that comes from a run
PASS1 = re.compile(r"eval_(.+)_pass1")  # the keys of evaluations
EVENTS = "events.out.tfevents.*"
PHASES = ("train", "eval")
NOT_LOGGED = ("phase", "step", "time")  # keys of a line that are no curves
Row = tuple[str, int, str, float]  # phase, step, metric, value


class UnreadableRun(UserError):
    """A folder that is left out of a report; the message says why in one line."""


@dataclass(frozen=True, eq=False)
class Run:
    """One training run and the numbers that it logged."""

    path: Path
    name: str
    algo: str
    seed: int | None
    status: str  # finished | running | failed, of a plain log: unknown
    meta: dict[str, Any]  # run.json, or nothing for a plain log
    # phase -> a row a step in order, a column a metric; finite, nan where a step did not log it
    logged: dict[str, "pandas.DataFrame"]
    evaluation: dict[str, Any] | None  # eval/results.json

    @property
    def sets(self) -> set[str]:
        """The names of its evaluation sets."""
        return {match[1] for key in self.logged["eval"] if (match := PASS1.fullmatch(key))}

    @property
    def places(self) -> list[dict[str, Any]]:
        """The records of its machines, one a resume."""
        earlier = self.meta.get("earlier_places")
        parts = earlier if isinstance(earlier, list) else ()
        return [self.meta, *(part for part in parts if isinstance(part, dict))]

    @property
    def block(self) -> str:
        """One machine and one starting model. Older records name neither; they are one block."""
        machines = sorted({str(one.get("machine")) for one in self.places})
        return f"{machines} {self.meta.get('starting_weights')}"

    @property
    def last_step(self) -> int:
        return max(int(table.index[-1]) for table in self.logged.values() if len(table))

    @property
    def planned_steps(self) -> int | None:
        """The steps of a finished run that `--train.hopeless end` may have stopped before; else None."""
        flags = flags_of(self.meta)
        steps = flags.get("--train.max_steps")
        stops = self.status == "finished" and flags.get("--train.hopeless") == "end"
        return steps if stops and type(steps) is int and steps <= MOST_STEPS else None

    @property
    def counted(self) -> bool:
        """Whether the run counts in means. A run that broke off does not: it trained for fewer steps."""
        return self.status in ("finished", "unknown")


def read_runs(paths: Iterable[str | Path]) -> tuple[list[Run], list[tuple[Path, str]]]:
    """Every run in these folders (or one level below), and every folder left out with the reason."""
    runs, skipped, seen = [], [], set()
    for path in map(Path, paths):
        for folder in _candidates(path):
            if folder.resolve() in seen:
                continue
            seen.add(folder.resolve())
            try:
                published = is_campaign(folder if folder.exists() else folder.parent)
                runs += _read_campaign(folder) if published else [read_run(folder)]
            except UnreadableRun as problem:
                skipped.append((folder, str(problem)))
    return runs, skipped


def read_run(folder: str | Path) -> Run:
    """Read one run; raise `UnreadableRun` with the reason if that is not possible."""
    folder = Path(folder)
    try:
        if not folder.is_dir() or not any(folder.iterdir()):
            why = "empty folder" if folder.is_dir() else "not a folder" if folder.exists() else "no such folder"
            raise UnreadableRun(why)
        if not _looks_like_run(folder):
            raise UnreadableRun("not a run: no run.json, metrics.jsonl or TensorBoard event file in it")
        meta, metrics = _read_json(folder, "run.json"), folder / "metrics.jsonl"
        if meta is not None and (not isinstance(meta, dict) or "algo" not in meta):
            raise UnreadableRun("run.json is of another program: it has no key `algo`")
        meta = as_it_is(folder, meta) if meta else {}
        unfinished = meta.get("status") in ("running", "failed")
        if not metrics.exists() and unfinished:
            reason = f" ({word(meta['reason'])})" if isinstance(meta.get("reason"), str) else ""
            raise UnreadableRun(f"{meta['status']}{reason}, and no step is logged")
        logged = _read_metrics(metrics, unfinished) if metrics.exists() else _read_events(folder)
        run = _run(folder, meta, tables_of(logged), _read_json(folder, "eval/results.json"))
    except (OSError, UnicodeDecodeError) as problem:
        raise UnreadableRun(f"cannot be read: {problem}") from problem
    flags = flags_of(meta)
    steps, every = (flags.get(flag) for flag in ("--train.max_steps", "--logger.logging_steps"))
    whole = run.status != "finished" or meta.get("reason") or run.planned_steps is not None
    if not whole and type(steps) is type(every) is int and run.last_step <= steps - every:
        raise UnreadableRun(
            f"the run finished, and metrics.jsonl ends at step {run.last_step} of {steps}: its data ended, or the "
            "copy is not whole. Copy the folder again"
        )
    return run


def _run(path: Path, meta: dict[str, Any], logged: "dict[str, pandas.DataFrame]", evaluation: Any = None) -> Run:
    if all(table.empty for table in logged.values()):
        raise UnreadableRun("nothing was logged")
    name = word(meta.get("name") or path.resolve().name)
    return Run(
        path=path,
        name=name,
        algo=word(meta.get("algo") or guess_algo(name)),
        seed=meta["seed"] if isinstance(meta.get("seed"), int) else guess_seed(name),
        status=word(meta.get("status") or "unknown"),
        meta=meta,
        logged=logged,
        evaluation=evaluation if isinstance(evaluation, dict) else None,
    )


def tables_of(logged: Iterable[Row]) -> "dict[str, pandas.DataFrame]":
    """Each phase's numbers. If a resumed run logs a step again, the later value counts."""
    import pandas

    steps: dict[str, dict[int, dict[str, float]]] = {}
    for phase, step, metric, value in logged:
        steps.setdefault(phase, {}).setdefault(step, {})[metric] = value
    return _filled({phase: pandas.DataFrame.from_dict(found, orient="index") for phase, found in steps.items()})


def _filled(tables: "dict[str, pandas.DataFrame]") -> "dict[str, pandas.DataFrame]":
    """A table a phase, without steps and metrics that have no number. Beyond LARGEST a number fits no axis."""
    import pandas

    found = {}
    for phase in PHASES:
        table = tables.get(phase, pandas.DataFrame()).rename_axis("step").astype(float)
        found[phase] = table.where(table.abs() < LARGEST).dropna(how="all").dropna(axis=1, how="all").sort_index()
    return found


def _read_campaign(folder: Path) -> list[Run]:
    """The campaign's runs; each gets a path as if it had a run folder. CAMPAIGN/PART has the runs named PART/..."""
    part = "" if is_campaign(folder) else f"{folder.name}/"
    folder = folder.parent if part else folder
    try:
        (records, _), lines = campaign_records(folder), campaign_lines(folder)
    except ImportError as problem:
        raise UnreadableRun("a campaign needs the package pyarrow: pip install pyarrow") from problem
    except (OSError, ValueError) as problem:
        raise UnreadableRun(f"the campaign cannot be read: {first_line(problem)}") from problem
    ours = lines["phase"].isin(PHASES) & lines["step"].between(0, LAST_STEP)
    metrics = lines[ours].set_index([*LINE]).select_dtypes("number").rename(columns=word)
    metrics = metrics.loc[:, ~metrics.columns.duplicated(keep="last")].groupby(level=[*LINE]).last()
    logged: dict[str, dict[str, pandas.DataFrame]] = {}
    for (run, phase), table in metrics.groupby(level=["run", "phase"]):
        logged.setdefault(run, {})[phase] = table.droplevel(["run", "phase"])
    runs = {run.removeprefix(part): run for run in records if run.startswith(part)}
    if not runs:
        raise UnreadableRun(f"the campaign {folder} has no runs {part}...")
    return [
        _run(folder / Path(name).name, {**records[run], "name": name}, _filled(logged.get(run, {})))
        for name, run in runs.items()
    ]


def is_campaign(folder: Path) -> bool:
    return (folder / ABOUT).is_file()


def campaign_records(folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Each run's record as its run.json had it, and the hashes of the files that the campaign was made of."""
    about = parsed(read_bytes(folder / ABOUT))
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError(f"{ABOUT} is not of format {FORMAT}")
    common, sources = about.get("common"), about.get("sources")
    if not isinstance(common, dict) or not isinstance(sources, dict):
        raise ValueError(f"{ABOUT} lacks the key `common` or `sources`")
    try:
        rows = list(csv.DictReader(io.StringIO(read_bytes(folder / RUNS).decode())))
    except csv.Error as error:
        raise ValueError(f"{RUNS} is broken: {error}") from error
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        if None in row or None in row.values() or not row.get("name"):
            raise ValueError(f"{RUNS} has a row with more or fewer cells than its header, or has no name")
        record = found[row["name"]] = {"name": row["name"]}
        record |= {key: {**value} if isinstance(value, dict) else value for key, value in common.items()}
        for key, cell in [*row.items()][1:]:
            outer, slash, inner = key.partition("/")
            if cell and slash:
                record.setdefault(outer, {})[inner] = cell_value(cell)
            elif cell:
                record[key] = cell_value(cell)
    return found, sources


def cell_value(cell: str) -> Any:
    """A cell of runs.csv is JSON, or a text that is none."""
    try:
        return parsed(cell)
    except ValueError:
        return cell


def campaign_lines(folder: Path) -> "pandas.DataFrame":
    """All logged lines, each with its run; nan for a metric that the line lacks."""
    import pandas
    import pyarrow

    try:
        found = pandas.read_parquet(io.BytesIO(read_bytes(folder / METRICS)))
        return found.dropna(subset=[*LINE]).astype({"step": "int64"})
    except (pyarrow.ArrowException, KeyError, ValueError, OSError) as error:
        raise ValueError(f"{METRICS} is broken: {error}") from error


def word(value: object, longest: int = LABEL) -> str:
    """A text from a run, made fit for a label: short, on one line, without control characters."""
    text = plain(" ".join(str(value)[: 2 * longest].split()))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def guess_algo(name: str) -> str:
    """A plain log has nothing but its folder's name: grpo-seed1 is GRPO, anything unknown stays itself."""
    words = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    known = (algo for algo in sorted(ALGORITHMS, key=len, reverse=True) if f"_{algo}_" in f"_{words}_")
    return next(known, re.sub(r"_?(seed_?|s)\d+$", "", words) or name)


def guess_seed(name: str) -> int | None:
    number = re.search(r"(?:seed|(?<![a-z])s)[-_=]?([0-9]{1,18})", name.lower())
    return int(number.group(1)) if number else None


def _candidates(path: Path) -> list[Path]:
    """The folder itself, or the runs one level below when it is only their parent, or those of a comparison."""
    if path.is_dir() and not _looks_like_run(path):
        for parent in (path, path / "runs"):
            children = parent.iterdir() if parent.is_dir() else ()
            below = sorted(child for child in children if child.is_dir() and not child.name.startswith("."))
            if any(map(_looks_like_run, below)):
                return below
    return [path]


def _looks_like_run(folder: Path) -> bool:
    files = ("run.json", "metrics.jsonl", ABOUT)
    return any((folder / name).exists() for name in files) or any(folder.glob(EVENTS))


def _read_metrics(path: Path, unfinished: bool) -> list[Row]:
    logged: list[Row] = []
    text = read_bytes(path)
    if not text.strip():
        raise UnreadableRun("metrics.jsonl is empty")
    text.decode()  # raises if it is not UTF-8
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = parsed(line)
        except ValueError as problem:
            if number == len(lines) and unfinished:
                break  # the run is writing this line, or a kill cut it off
            last = f"half-written: line {number} is cut off. Copy the folder again"
            fault = last if number == len(lines) else f"broken: line {number} is not JSON"
            raise UnreadableRun(f"metrics.jsonl is {fault}") from problem
        if not isinstance(row, dict) or row.get("phase") not in PHASES or not _is_step(row.get("step")):
            raise UnreadableRun(f"metrics.jsonl is not from here: line {number} has no phase (train or eval) and step")
        logged += _numbers(row)
    return logged


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value <= LAST_STEP


def _numbers(row: dict[str, Any]) -> Iterable[Row]:
    for key, value in row.items():
        if key not in NOT_LOGGED and type(value) in (int, float):
            yield row["phase"], row["step"], word(key), float(value) if abs(value) < LARGEST else math.nan


def _read_events(folder: Path) -> list[Row]:
    """Scalars tagged train/<key> and eval/<key>, as OpenRLHF's own logger writes them."""
    files = [path for path in folder.iterdir() if "tfevents" in path.name]
    if not files or not all(map(Path.is_file, files)):
        raise UnreadableRun("no metrics.jsonl and no TensorBoard event file: the run logged nothing")
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError as problem:
        raise UnreadableRun("its TensorBoard log needs the package tensorboard: pip install tensorboard") from problem
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})  # 0: all of them
    events.Reload()
    logged: list[Row] = []
    for tag in events.Tags()["scalars"]:
        phase, _, key = tag.partition("/")
        for event in events.Scalars(tag) if phase in PHASES else ():
            if _is_step(event.step):
                logged += _numbers({"phase": phase, "step": event.step, key: event.value})
    if not logged:
        raise UnreadableRun("its TensorBoard log has no scalar tagged train/... or eval/...: not an OpenRLHF log")
    return logged


def _read_json(folder: Path, name: str) -> Any:
    try:
        return parsed(read_bytes(folder / name)) if (folder / name).exists() else None
    except ValueError as problem:
        raise UnreadableRun(f"{name} is broken or half-written: {first_line(problem)}") from problem
