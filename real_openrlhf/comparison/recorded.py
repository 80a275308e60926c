"""Runs recorded earlier that a comparison's report shows beside its own: `--beside`."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import short_path
from real_openrlhf.machine import nvidia
from real_openrlhf.recipes.plan import flags_of
from real_openrlhf.runs.provenance import PACKAGE, machine

if TYPE_CHECKING:
    from real_openrlhf.report.read_runs import Run

# Runs stand beside one another only if these are equal. A rate need not be: a method may be tuned.
PROTOCOL = """--train.max_steps --train.batch_size --train.max_epochs --train.async_enable --train.async_queue_size
    --rollout.batch_size --rollout.n_samples_per_prompt --rollout.max_new_tokens --actor.max_norm --eval.steps
    --eval.n_samples_per_prompt""".split()


def folders(patterns: Iterable[str]) -> list[str]:
    """The folders that these words name, from here or from the checkout, which has the records of our campaigns."""
    found: list[str] = []
    for pattern in map(os.path.expanduser, filter(None, patterns)):
        here = sorted(glob.glob(pattern)) or sorted(glob.glob(str(PACKAGE.parent / pattern)))
        if not here:
            raise UserError(
                f"--beside {pattern}: no such folder. Name campaigns or folders of runs, or give --beside '' for none"
            )
        found += here
    return found


def notes(patterns: Iterable[str]) -> Iterator[str]:
    """Before the training: how many recorded runs there are, and whether they can count here."""
    from real_openrlhf.report.read_runs import read_runs  # pandas takes a second

    if not (named := folders(patterns)):
        return
    runs, skipped = read_runs(named)
    if not runs:
        raise UserError(f"--beside {skipped[0][0]}: {skipped[0][1]}. Name campaigns or folders of runs")
    here = machine(nvidia.gpu_names())
    alike = sum(run.meta.get("machine") == here for run in runs)
    advice = "" if alike else ". Train rivals here too, such as --algos real grpo gspo"
    where = ", ".join(map(short_path, named))
    yield f"{alike} of the {len(runs)} runs recorded in {where} are of a machine like this one{advice}"


def with_rivals(ours: Sequence["Run"], patterns: Iterable[str]) -> list["Run"]:
    """Our runs, and the recorded ones of this machine, starting model and protocol."""
    from real_openrlhf.report.read_runs import read_runs

    runs = read_runs(folders(patterns))[0]
    if not runs:
        return [*ours]
    known, paths = {_conditions(run) for run in ours}, {run.path.resolve() for run in ours}
    rivals = [run for run in runs if _conditions(run) in known and run.path.resolve() not in paths]
    conditions = "machine, starting model, steps and batches"
    print(f"beside: {len(rivals)} of the {len(runs)} recorded runs, those of this {conditions}")
    return [*ours, *rivals]


def _conditions(run: "Run") -> tuple[str, ...]:
    return (run.block, *(str(flags_of(run.meta).get(flag)) for flag in PROTOCOL))
