"""The dry run of a comparison: list its runs, check those that are left, and estimate their cost."""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import short_path
from real_openrlhf.base.secrets import hide
from real_openrlhf.base.whole_folders import size_of
from real_openrlhf.comparison.run_list import FINISHED, Entry, RunList, state
from real_openrlhf.comparison.trainer import eval_args
from real_openrlhf.evaluation.engines import engine_count
from real_openrlhf.evaluation.tasks import refuse_length
from real_openrlhf.training import run_inputs
from real_openrlhf.training.checks import memory_estimate, run_checks
from real_openrlhf.training.checks.preflight import existing
from real_openrlhf.training.launch.place import Place
from real_openrlhf.training.run_inputs import Request

SHOWN = 24  # runs that a dry run lists


def problems(runs: RunList, entries: Sequence[Entry], dry_run: bool = False) -> tuple[list[str], list[str]]:
    """(problems, notes) of all methods; a line that only some runs have begins with their names."""
    alike = {(entry.algo, entry.flags): entry for entry in reversed(entries)}
    said: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    for entry in reversed(alike.values()):
        try:
            request = runs.request(entry, *["--dry-run"] * dry_run)
            place = Place.of(request.recipe)
            found = run_checks.found(request, place)
            lists = [*found.problems, *_evaluation_problems(request, place, runs.evaluation)], found.notes
        except UserError as error:
            lists = error.problems, []
        for known, new in zip(said, lists, strict=True):
            for line in new:
                known.setdefault(line, []).append(entry.name)
    wrong, notes = (
        [line if len(names) == len(alike) else f"{', '.join(names)}: {line}" for line, names in lines.items()]
        for lines in said
    )
    return wrong, notes


def _evaluation_problems(request: Request, place: Place, words: Sequence[str] | None) -> Iterator[str]:
    """Why the model that this run makes could not be evaluated, as far as can be told before it is made."""
    if words is None:
        return
    flags = request.flags
    if flags.args.ds.lora.rank:
        yield (
            "--benchmarks: a run with --ds.lora.rank saves an adapter, which `eval` cannot load. Give --benchmarks "
            "none, and evaluate the merged model (docs/use/runs.md)"
        )
    args = eval_args(words)
    try:
        refuse_length(args.max_new_tokens, Path(flags.text(run_inputs.MODEL)).expanduser())
        engine_count(args.data_parallel, place.gpus_here, args.tensor_parallel)
    except UserError as error:
        yield from (f"--eval-flags {problem}" for problem in error.problems)


def show(runs: RunList, own_notes: Sequence[str] = (), everything: bool = False) -> int:
    states = {entry: state(runs, entry) for entry in runs.entries}
    todo = [entry for entry, one in states.items() if one.kind != FINISHED]
    width, wide = max(len(entry.name) for entry in runs.entries), max(len(one.kind) for one in states.values())
    print(f"{len(states)} runs, {len(states) - len(todo)} finished: {short_path(str(runs.folder))}")
    for entry, one in [*states.items()][: None if everything else SHOWN]:
        flags = " ".join(["--algo", entry.algo, *entry.flags])
        print(f"  {entry.name:{width}}  {one.kind:{wide}}  {flags}  {one.about}".rstrip())
    if len(states) > SHOWN and not everything:
        print(f"  and {len(states) - SHOWN} more: --all")
    print(f"flags of all runs: {' '.join(hide(runs.common))}")
    print(f"evaluation of each: {' '.join(runs.evaluation) if runs.evaluation is not None else 'none'}\n")
    wrong, notes = problems(runs, todo, dry_run=True)
    cost, room = cost_of(runs, todo)
    notes = [*own_notes, *room, *notes]
    print("\n".join(cost))
    print("\n".join(f"note: {note}" for note in notes))
    if todo:
        print(f"the first to start: {todo[0].name}")
    if wrong:
        print("\n".join([f"{len(wrong)} wrong:", *(f"  - {one}" for one in wrong)]))
    else:
        print(f"nothing is wrong, {len(notes)} note{'s' * (len(notes) != 1)}")
    return 2 if wrong else 0


def cost_of(runs: RunList, todo: Sequence[Entry]) -> tuple[list[str], list[str]]:
    """Lines with disk space and downloads of the runs that are left, and a note if their disk is too small."""
    disk, kept, most, downloads = 0.0, 0.0, 0.0, {}
    for entry in todo:
        with contextlib.suppress(UserError, ValueError, KeyError, OSError):  # `problems` reports these
            flags = runs.request(entry).flags
            model = flags.text(run_inputs.MODEL)
            config = memory_estimate.KNOWN_CONFIGS.get(model) or run_inputs.config_of(Path(model))
            if (shape := memory_estimate.shape_of(config)) is None:
                return [f"no estimate: the shape of {model} is not known here"], []
            if not runs.trained(entry):
                peak = end = memory_estimate.disk(shape, flags)
                disk += peak
                kept += max(end - size_of([runs.path(entry)]), 0)  # an interrupted run has some of it
                most = max(most, peak - end)
            if not Path(model).exists():
                downloads[model] = 2.0 * shape.parameters
    lines = [f"disk: {disk / 1e9:,.0f} GB; a finished run's checkpoints/ may be deleted"]
    lines += [f"download: {name}, {size / 1e9:.1f} GB, once" for name, size in downloads.items()]
    place = existing(runs.folder)
    free, needed = shutil.disk_usage(place).free, kept + most  # the last run writes a checkpoint before it deletes one
    said = (
        f"together the runs need {needed / 1e9:,.0f} GB, and {short_path(str(place))} has {free / 1e9:,.0f} GB free: "
        "delete checkpoints/ of finished runs in time, or give another --out or a smaller --ckpt.max_num"
    )
    return lines, [said] if needed > free and len(todo) > 1 else []
