"""A run's folder and its record, run.json: written before the training starts, and with its ending at any end."""

import contextlib
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from real_openrlhf.base.run_files import FINISHED, METRICS
from real_openrlhf.base.signals import code_and_words, signals_held
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
    training = None
    with contextlib.ExitStack() as stack:
        try:
            with signals_held():  # a folder without a record would be nobody's
                path = (request.resumed or run_folder.create(args.runs_dir, request.stem, args.run_name)).resolve()
                lock = stack.enter_context(run_folder.only_one(path))
                if not request.resumed:
                    run_folder.refuse_name(args.runs_dir, args.run_name)  # another command may have been there before
                begun = Training(start, path, replace(request, folder=path).run, lock)
                begun.record = _begun(begun) | origin
                if request.resumed:
                    before = run_folder.read(path)
                    begun.record["started"] = before.get("started", begun.record["started"])
                    begun.record |= run_record.earlier(before, begun.record, begun.run)
                run_folder.write(path, begun.record)
                training = begun
            (path / FINISHED).unlink(missing_ok=True)
            (path / ROOM).write_bytes(bytes(1 << 16))
            yield training
        except KeyboardInterrupt as ended:  # one that was held, or came before the training
            if training:
                training.code, training.reason = code_and_words(ended)
            raise
        finally:
            if training:
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
