"""A run's folder and its record, run.json: written before the training starts, and with its ending at any end."""

import contextlib
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from real_openrlhf.base.run_files import FINISHED, METRICS
from real_openrlhf.base.signals import signals_held
from real_openrlhf.recipes.run import Run
from real_openrlhf.runs import run_folder, run_record
from real_openrlhf.training.start import Start
from real_openrlhf.training.trainer_process import scratch_base

FULL_BYTES = 1 << 20
ROOM = ".room"  # in a run's folder while it trains: what its record takes on a full disk


@dataclass
class Training:
    """A run in its folder, which this command has locked; `code`, `reason`, `last_step`: how it ended."""

    start: Start
    path: Path
    run: Run
    lock: int
    code: int = 1
    reason: str | None = "the launcher failed"
    last_step: int = 0  # that was logged, by this command or before a resume
    record: dict[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def recorded(start: Start) -> Iterator[Training]:
    request, args = start.request, start.request.args
    origin = run_record.origin(start.run, start.variables)
    with contextlib.ExitStack() as stack:
        with signals_held():  # a folder without a record would be nobody's
            path = (request.resumed or run_folder.create(args.runs_dir, request.stem, args.run_name)).resolve()
            lock = stack.enter_context(run_folder.only_one(path))
            if not request.resumed:
                run_folder.refuse_name(args.runs_dir, args.run_name)  # another command may have been there before
            training = Training(start, path, replace(request, folder=path).run, lock)
            training.record = _begun(training) | origin
            if request.resumed:
                before = run_folder.read(path)
                training.record["started"] = before.get("started", training.record["started"])
                training.record |= run_record.earlier(before, training.record, training.run)
            run_folder.write(path, training.record)
        (path / FINISHED).unlink(missing_ok=True)
        (path / ROOM).write_bytes(bytes(1 << 16))
        try:
            yield training
        finally:
            with signals_held():
                _end(training)


def _begun(training: Training) -> dict[str, Any]:
    request, run = training.start.request, training.run
    return {
        "name": training.path.name,
        "algo": request.args.algo,
        "recipe": request.recipe.name,
        "seed": run.args.train.seed,
        "status": "running",
        "reason": None,
        "started": run_folder.now(),
        "finished": None,
        "command": run_record.typed(),
        "words": request.words,
        "host": platform.node(),
        "flags": run_record.recorded_flags(run),
    }


def _end(training: Training) -> None:
    path, run, reason = training.path, training.run, training.reason
    places = {path: "move the run to another --runs-dir"}
    if training.start.target.address is None:
        places[Path(scratch_base(training.start.environment))] = "set TMPDIR to another folder"
    for place, other in places.items():
        if reason and shutil.disk_usage(place).free < FULL_BYTES:
            reason = f"the disk of {place} is full: free some space, or {other}"
    (path / ROOM).unlink(missing_ok=True)
    status = "failed" if reason else "finished"
    training.last_step = run_folder.last_step(path / METRICS)
    every = run.args.logger.logging_steps
    reason = reason or run_folder.early_end(training.last_step, run.args.train.max_steps, every)
    training.record |= {"status": status, "reason": reason, "finished": run_folder.now()}
    run_folder.write(path, training.record)
