"""What run.json keeps of a run (flags, files, code, machine), and how a run of today differs from that."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from real_openrlhf.base import atomic_dirs
from real_openrlhf.base.files import sha256_of_all
from real_openrlhf.base.parsing import json_value
from real_openrlhf.base.run_files import CHECKPOINTS
from real_openrlhf.base.secrets import HIDDEN, REWARD, WANDB_KEY, hide
from real_openrlhf.base.user_files import file_of
from real_openrlhf.machine import nvidia
from real_openrlhf.recipes.run import AGENT, MODEL, OBJECTIVE, PLACES, RUN_DIR, TRAINING, VALIDATION, Run
from real_openrlhf.runs import provenance
from real_openrlhf.runs.provenance import PACKAGE

WEIGHTS = (".safetensors", ".bin")  # files of a model
EARLIER_FLAGS = "earlier_flags"  # the values that a resume changed
OWN_FILES = {  # keys of a record
    "data": "other data",
    "objective": "another objective or agent of your own",
    "rewards": "another reward file of your own",
}


def typed() -> list[str]:
    """The command line as it was typed, without secrets."""
    return hide(["real-openrlhf", *sys.argv[1:]])


def origin(run: Run, variables: Mapping[str, str]) -> dict[str, Any]:
    """The code and the machine, and the hashes of what it reads."""
    return {
        **provenance.provenance(nvidia.gpu_names(), variables),
        "starting_weights": starting_weights(Path(run.text(MODEL))),
        **{key: provenance.hashes(paths) for key, paths in own_files(run).items()},
    }


def starting_weights(model: Path) -> str | None:
    """One hash of a model's weight files; None for a model of the hub, whose name says which it is."""
    files = [path for path in model.glob("*") if path.suffix in WEIGHTS]
    return sha256_of_all(files) if files else None


def own_files(run: Run) -> dict[str, list[Path]]:
    """The files whose hashes a run keeps, by the key of its record: a flag names them, and they may change."""

    def named(*names: str) -> list[Path]:
        return [Path(name) for flag in names for name in run.text(flag).split(",")]

    functions = [path] if (path := file_of(run.text(OBJECTIVE))) else []
    rewards = [path for path in named(REWARD) if path.suffix == ".py" and PACKAGE not in path.parents]
    every = {"data": named(TRAINING, VALIDATION), "objective": [*functions, *named(AGENT)], "rewards": rewards}
    return {key: [path for path in dict.fromkeys(paths) if path.is_file()] for key, paths in every.items()}


def recorded_flags(run: Run) -> dict:
    return {flag: HIDDEN if flag == WANDB_KEY else json_value(s.words) for flag, s in run.flags.items()}


def flags_of(record: Mapping) -> dict:
    """A record's flags; {} if it has none (old or foreign record)."""
    recorded = record.get("flags")
    return recorded if isinstance(recorded, dict) else {}


# What has changed since


def changed_flags(record: Mapping, run: Run) -> dict[str, tuple]:
    """{flag: (value in the record, value now)} for flags that differ, without PLACES."""
    before, now = flags_of(record), recorded_flags(run)
    both = {flag: (before.get(flag), now.get(flag)) for flag in sorted({*before, *now} - PLACES)}
    return {flag: (old, new) for flag, (old, new) in both.items() if old != new}


def changed_files(record: Mapping, run: Run) -> dict[str, str]:
    """{key of OWN_FILES: what the run began with, and what is there now}, where the contents differ."""
    changes = {}
    for key, paths in own_files(run).items():
        before = record.get(key)  # a run that is only starting in another process has told its flags alone
        if not isinstance(before, dict) or (key == "data" and not paths):  # missing data is told where it is needed
            continue
        now = provenance.hashes(paths)
        if {*before.values()} != {*now.values()}:
            both = (", ".join(f"{path} ({sha[:12]})" for path, sha in files.items()) for files in (before, now))
            changes[key] = f"{OWN_FILES[key]}: {', now '.join(names or 'none' for names in both)}"
    return changes


def earlier(record: Mapping, now: Mapping, run: Run) -> dict[str, list[dict]]:
    """Of a resumed run's earlier parts the code, the place and the flags that are not today's; nothing if all are."""
    return provenance.earlier(record, now) | _earlier_flags(record, run)


def _earlier_flags(record: Mapping, run: Run) -> dict[str, list[dict]]:
    """The other values with which a resumed run trained up to its checkpoint, one dictionary per change."""
    other = changed_flags(record, run) if checkpoints(Path(run.text(RUN_DIR))) else {}
    parts = [*record.get(EARLIER_FLAGS, ()), *([{flag: old for flag, (old, _) in other.items()}] if other else [])]
    return {EARLIER_FLAGS: parts} if parts else {}


def checkpoints(run: Path) -> list[dict]:
    """The manifests of the policy's checkpoints in a run's folder."""
    return [*filter(None, map(atomic_dirs.manifest, run.glob(f"{CHECKPOINTS}/_actor/*")))]
