"""All checks of a run before it starts: what would crash it late, or spoil it without a word."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.base import atomic_dirs, reward_variables
from real_openrlhf.base.errors import BY_VARIABLE, KEY_VARIABLE, LOGIN, REWARD, WANDB_KEY
from real_openrlhf.base.user_files import reward_problem
from real_openrlhf.flags.refusals import gpu_problems, notes, size_problems
from real_openrlhf.patching import assert_applied
from real_openrlhf.recipes.recipes import TRAINING_ROWS
from real_openrlhf.recipes.run import Run, changed_flags
from real_openrlhf.runs import provenance, run_folder
from real_openrlhf.training import run_inputs
from real_openrlhf.training.checks import data_check, memory_estimate, model_check
from real_openrlhf.training.checks.findings import Findings, Note
from real_openrlhf.training.launch_target import LaunchTarget
from real_openrlhf.training.run_inputs import TRAINING, VALIDATION, Request


def findings(request: Request, target: LaunchTarget) -> Findings:
    """What every check finds in the run as it was resolved; wrong flags were left out of it."""
    every = Findings(where="The cluster" if target.address else "This machine")
    every.add(_patched())
    if every.problems:
        return every  # without OpenRLHF there are no arguments to check
    run = request.run
    every.add(run.problems)
    every.add(map(Note, notes(run.args)))
    every.add(size_problems(run.args))
    every.add(_reward(run))
    every.add(gpu_problems(run.args) if request.recipe.on_cpu else ())
    every.add(reward_variables.variable_problems())
    every.add(_key(request))
    machine = [*target.launch_problems(run)]
    if request.args.dry_run and target.address is None and machine:
        every.elsewhere = target.lacks(run) or "see the notes"
    every.add(machine, of_machine=True)
    every.add(data(request))
    every.add(_model(request, target, bool(every.elsewhere)))
    every.add(_resumed(request, target))
    return every


def _patched() -> Iterator[str]:
    assert_applied()
    yield from ()


def _key(request: Request) -> Iterator[str]:
    """wandb's, which travels as a variable."""
    known = {**os.environ, **request.secrets}.get(KEY_VARIABLE)
    if not known and request.run.args.logger.wandb.key == BY_VARIABLE:
        yield f"{WANDB_KEY} {BY_VARIABLE}: {KEY_VARIABLE} is not set. Type `export {KEY_VARIABLE}=...`."


def _reward(run: Run) -> Iterator[str]:
    """A fault of the file would show after the model is loaded."""
    for url in run.text(REWARD).split(","):
        if url.endswith(".py") and (wrong := reward_problem(Path(url))):
            yield f"--reward.remote_url {url} {wrong}"
        elif LOGIN.search(url):
            yield "--reward.remote_url: OpenRLHF would print the password in it. Call that server from a file.py."


def data(request: Request) -> Iterator[str]:
    """Check the files that exist. A run makes the missing ones, then checks again."""
    run, missing = request.run, set(map(str, request.missing()))
    checked = [flag for flag in (TRAINING, VALIDATION) if flag in run.flags and run.text(flag) not in missing]
    own = request.args.data not in (None, *TRAINING_ROWS)
    if own and VALIDATION in run.flags and not run.given(VALIDATION):
        message = (
            f"validation stays on {run.text(VALIDATION)}, the recipe's: give --eval.dataset FILE with "
            "the columns of your --data, or --no-eval.dataset"
        )
        named = data_check.COLUMNS.keys() & request.user.keys()  # columns that the recipe's file lacks
        yield message if named else Note(message)
        checked = [TRAINING] if named else checked
    for flag in checked:
        yield from data_check.check(run, flag)
    if request.args.dry_run and missing:
        yield Note(f"made before training starts: {', '.join(sorted(missing))}", "what is made before training")
    if (rows := run_inputs.training_rows(run.text(TRAINING))) is not None:
        yield from data_check.step_problems(run.args, rows)


def _model(request: Request, target: LaunchTarget, elsewhere: bool) -> Iterator[str]:
    """Whether the model exists, and whether it fits into memory and disk."""
    run = request.run
    model = run.text(run_inputs.MODEL)
    config = memory_estimate.KNOWN_CONFIGS.get(model)
    if Path(model) not in request.missing():
        try:
            config = model_check.read_config(model)
            yield from model_check.model_problems(run.args, config)
        except model_check.Unreachable as error:
            unchecked = "the model on the hub" if config else "the model on the hub and its memory"
            yield Note(error, unchecked) if elsewhere else str(error)
    if not (shape := memory_estimate.shape_of(config or {})):
        return
    if not target.on_cpu:
        yield from memory_estimate.check(shape, run.args, target.gpu_gb or request.recipe.gpu_gb)
    runs_dir = Path(os.path.realpath(request.args.runs_dir))
    disk = next(path for path in (runs_dir, *runs_dir.parents) if path.exists())
    size, free = memory_estimate.disk(shape, run.args) / 1e9, shutil.disk_usage(disk).free / 1e9
    if size > free:
        message = f"the run folder will take {size:.1f} GB, {disk} has {free:.1f} GB free: another "
        message += "--runs-dir, or a smaller --ckpt.max_num"
        yield Note(message) if target.address or elsewhere else message


def _resumed(request: Request, target: LaunchTarget) -> Iterator[str]:
    folder = request.resumed
    if folder is None:
        runs, name = request.args.runs_dir, request.args.run_name
        run_folder.refuse_name(runs, name)
        if request.args.resume and name and (near := run_folder.near_name(runs, name, request.stem)):
            yield Note(f"{request.folder} is new. {near} is unfinished")
        return
    record = run_folder.read(folder)
    if run_folder.stem_of(record) != request.stem:
        yield (
            f"{folder} is a run of {run_folder.stem_of(record)}, not of {request.stem}. Resume it with its own "
            "recipe, algorithm and seed, or choose another --run-name."
        )
    # A resumed run must have the code with which it began; that its data changed is told.
    for key, changed in run_inputs.changed_files(record, request.run).items():
        begun = f"{folder} began with {changed}"
        put_back = "Put the file back as it was, or start a new run with another --run-name."
        yield Note(f"{begun}: it goes on with these") if key == "data" else f"{begun}. {put_back}"
    run = request.run
    manifests = (atomic_dirs.manifest(path.parent) for path in run_inputs.checkpoints(folder))
    ranks = run.layout.ranks
    for others in {(manifest or {}).get("ranks", ranks) for manifest in manifests} - {ranks}:
        if not run.args.ds.use_universal_ckpt:
            yield (
                f"{folder} has checkpoints of {others} GPUs, and this run has {ranks}: DeepSpeed cannot divide "
                f"the optimizer anew. Give {others} in all (--gpus times --nodes)."
            )
    before, now = record.get("variables") or {}, provenance.variables(target.environment(run))
    for name in reward_variables.GRADERS:
        if (was := before.get(name, now[name])) != now[name]:
            yield (
                f"{folder} began with {name}={was}, and now it is {now[name]}: labels would change. Set {name}={was}."
            )
    for flag, (old, new) in changed_flags(record, run).items():
        yield Note(f"since this run began {flag} has changed from {old} to {new}")
