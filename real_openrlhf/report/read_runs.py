"""Read run folders as `Run`; a folder that cannot be read is listed with a reason.

Texts of a run may come from others: `word` makes them fit for a label.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from real_openrlhf.base.errors import UserError, first_line
from real_openrlhf.base.files import parsed
from real_openrlhf.base.run_files import EVALUATION, METRICS, PHASES, RECORD, REHEARSAL
from real_openrlhf.base.terminal import plain
from real_openrlhf.runs.run_folder import early_end, last_step, logged_rows, state
from real_openrlhf.runs.run_record import EARLIER_FLAGS, flags_of

if TYPE_CHECKING:
    import pandas

NOT_LOGGED = ("phase", "step", "time")  # keys of a line that are no curves
LARGEST = 1e100  # beyond it a number fits no axis
PASS1 = re.compile(r"eval_(.+)_pass1")  # the keys of evaluations
LABEL = 120  # letters of a name that comes from a run


class UnreadableRun(UserError):
    """A folder that is left out of a report; the message says why in one line."""


@dataclass(frozen=True, eq=False)
class Run:
    """One training run and the numbers that it logged."""

    path: Path
    name: str
    algo: str
    seed: int | None
    status: str  # finished | running | failed
    meta: dict[str, Any]  # run.json
    logged: dict[str, "pandas.DataFrame"]  # phase -> a row per step, a column per metric; nan where it was not logged
    evaluation: dict[str, Any] | None  # eval/results.json

    @property
    def flags(self) -> dict[str, Any]:
        """Those of run.json; a value that a resume changed is `0.001, then 0.0001`."""
        flags = flags_of(self.meta)
        for part in reversed(self.meta.get(EARLIER_FLAGS, ())):
            flags = flags | {flag: f"{old}, then {flags.get(flag)}" for flag, old in part.items()}
        return flags

    @property
    def sets(self) -> set[str]:
        """The names of its evaluation sets."""
        return {match[1] for key in self.logged["eval"] if (match := PASS1.fullmatch(key))}

    @property
    def last_step(self) -> int:
        return max(int(table.index[-1]) for table in self.logged.values() if len(table))

    @property
    def counted(self) -> bool:
        """Whether the run counts in means. A run that broke off does not: it trained for fewer steps."""
        return self.status == "finished"


def read_runs(paths: Iterable[str | Path]) -> tuple[list[Run], list[tuple[Path, str]]]:
    """Every run in these folders (or one level below), and every folder left out with the reason."""
    runs, skipped, seen = [], [], set()
    for folder in (folder for path in paths for folder in _folders(Path(path))):
        if folder.resolve() not in seen:
            seen.add(folder.resolve())
            try:
                runs.append(read_run(folder))
            except UnreadableRun as problem:
                skipped.append((folder, str(problem)))
    return runs, skipped


def _folders(path: Path) -> list[Path]:
    """The folder itself, or the runs one level below it, or below its `runs`, as a comparison has them."""
    for parent in () if _looks_like_run(path) or path.name.startswith(REHEARSAL) else (path, path / "runs"):
        below = sorted(parent.glob("[!.]*/")) if parent.is_dir() else []
        if any(map(_looks_like_run, below)):
            return below
    return [path]


def _looks_like_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (RECORD, METRICS))


def read_run(folder: str | Path) -> Run:
    """Read one run; raise `UnreadableRun` with the reason if that is not possible."""
    folder = Path(folder)
    try:
        if not _looks_like_run(folder):
            why = "a rehearsal, not a run" if folder.name.startswith(REHEARSAL) else "not a run: no run.json in it"
            raise UnreadableRun(why if folder.exists() else "no such folder")
        meta = _read_json(folder / RECORD)
        if not isinstance(meta, dict) or "algo" not in meta:
            raise UnreadableRun("run.json is missing, or of another program: it has no key `algo`")
        meta = state(folder, meta)
        metrics = folder / METRICS
        if not metrics.exists():
            reason = f" ({word(meta['reason'])})" if isinstance(meta.get("reason"), str) else ""
            raise UnreadableRun(f"{meta.get('status')}{reason}, and no step is logged")
        if meta.get("status") == "finished" and not meta.get("reason") and _is_cut_off(folder, meta):
            raise UnreadableRun("it finished, and metrics.jsonl lacks its last steps: copy the folder again")
        logged = _read_metrics(metrics)
        evaluation = folder / EVALUATION / "results.json"
        return run_of(folder, meta, logged, _read_json(evaluation) if evaluation.exists() else None)
    except (OSError, UnicodeDecodeError) as problem:
        raise UnreadableRun(f"cannot be read: {problem}") from problem


def _is_cut_off(folder: Path, meta: dict) -> bool:
    steps, every = flags_of(meta).get("--train.max_steps", 0), flags_of(meta).get("--logger.logging_steps", 1)
    return type(steps) is type(every) is int and early_end(last_step(folder / METRICS), steps, every) is not None


def run_of(path: Path, meta: dict[str, Any], logged: "Mapping[str, pandas.DataFrame]", evaluation: Any = None) -> Run:
    """A run of its record and its logged numbers, without the steps and metrics that have none."""
    import pandas

    tables = {}
    for phase in PHASES:
        table = logged.get(phase, pandas.DataFrame()).rename_axis("step").astype(float)
        table = table.where(table.abs() < LARGEST).dropna(how="all").dropna(axis=1, how="all")
        tables[phase] = table.sort_index()
    if all(table.empty for table in tables.values()):
        raise UnreadableRun("nothing was logged")
    name, algo, status = word(meta.get("name") or path.name), word(meta.get("algo")), word(meta.get("status"))
    seed = meta["seed"] if type(meta.get("seed")) is int else None
    return Run(path, name, algo, seed, status, meta, tables, evaluation if isinstance(evaluation, dict) else None)


def _read_metrics(path: Path) -> "dict[str, pandas.DataFrame]":
    """If a resumed run logged a step again, the later value counts."""
    import pandas

    steps: dict[str, dict[int, dict[str, float]]] = {phase: {} for phase in PHASES}
    for row in logged_rows(path.read_bytes()):
        numbers = {word(key): row[key] for key in row if key not in NOT_LOGGED}
        steps[row["phase"]].setdefault(row["step"], {}).update(numbers)
    return {phase: pandas.DataFrame.from_dict(rows, orient="index") for phase, rows in steps.items()}


def word(value: object, longest: int = LABEL) -> str:
    """A text from a run, made fit for a label: short, on one line, without control characters."""
    text = plain(" ".join(str(value)[: 2 * longest].split()))
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _read_json(path: Path) -> Any:
    try:
        return parsed(path.read_bytes()) if path.exists() else None
    except ValueError as problem:
        raise UnreadableRun(f"{path.name} is broken or half-written: {first_line(problem)}") from problem
