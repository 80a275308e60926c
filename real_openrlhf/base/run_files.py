"""The files of a run's folder by name: processes of the run write them, commands read them. And the run's phase."""

import contextlib
from pathlib import Path

RECORD = "run.json"  # what the run is, and how it ended
METRICS = "metrics.jsonl"  # a line for each logged step, with a phase of PHASES
ROLLOUTS = "rollouts.jsonl"  # some groups of each step, with the weight of each response
NOTES = "notes.jsonl"  # what a resume has to say, and steps that teach nothing
LOG = "train.log"  # the output of all its processes
CHECKPOINTS, MODEL, EVALUATION = "checkpoints", "model", "eval"  # folders: DeepSpeed's, the final weights, `eval`'s
REHEARSAL = "rehearsal-"  # how the name of a rehearsal's folder begins, which holds a small run
LOCK = ".lock"  # held by each of its processes
FINISHED = ".finished"  # the training process reached its end, whether or not anybody watched
PHASE = ".phase"  # what the run does now

PHASES = ("train", "eval")


def enter(run_dir: str | None, phase: str) -> None:
    """Note that a run begins this phase; training/trainer_process.py ends one that begins none for too long."""
    if run_dir:
        with contextlib.suppress(OSError):  # a full disk is told by what needs it
            (Path(run_dir) / PHASE).write_text(phase)
