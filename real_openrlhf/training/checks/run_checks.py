"""All checks of a run before it starts. Each fault is reported once."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.base import ownership, reward_variables, whole_folders
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import short_path
from real_openrlhf.patching import assert_applied
from real_openrlhf.recipes import openrlhf_parser
from real_openrlhf.recipes.plan import USER, changed_flags
from real_openrlhf.recipes.recipes import TRAINING_ROWS
from real_openrlhf.runs import provenance, run_folder
from real_openrlhf.training import run_inputs
from real_openrlhf.training.checks import (
    data_check,
    flag_checks,
    memory_estimate,
    model_check,
    preflight,
    reward_check,
)
from real_openrlhf.training.checks.findings import Findings, Line, Note
from real_openrlhf.training.launch.place import Place
from real_openrlhf.training.run_inputs import OPTIONS, Request
from real_openrlhf.training.tasks.tiny_model import cache_folder

LOGS = "--logger.tensorboard_dir"
FILLED = ("--ckpt.path", "--ckpt.output_dir")


def found(request: Request, place: Place) -> Findings:
    findings = Findings()
    right = request.without(_flags(request, findings))
    if not openrlhf_parser.defaults():
        return findings  # without OpenRLHF there are no arguments to check
    plan, args, local = right.plan(), right.args, place.address is None
    for check in (
        flag_checks.size_problems,
        flag_checks.chosen_loss,
        flag_checks.unread,
        reward_check.reward_problems,
    ):
        findings.add(check(plan))
    findings.add(reward_variables.problems())
    machine = [*place.problems(plan), *(preflight.kernel_problems(plan) if local else ())]
    findings.elsewhere = bool(args.dry_run and local and machine)  # a dry run may be for another machine
    findings.add(machine, of_machine=True)
    findings.add(preflight.secret_problems(plan, request.secrets, place.address, place.job_address))
    unusable = [*preflight.folder_problems(args.runs_dir)]
    findings.add(unusable)
    if not unusable:
        findings.add(preflight.lock_problems(args.runs_dir), of_machine=True)
    if local and not unusable:
        findings.add(preflight.room_problems(args.runs_dir), of_machine=True)
    servers = reward_check.server_problems(plan)  # a cluster may reach servers that this machine does not
    findings.add(servers if local else map(Note, servers), of_machine=True)
    findings.add(_folders(right, place))
    findings.add(data(right, findings.elsewhere))
    findings.add(_model(right, place, findings.elsewhere))
    findings.add(_resumed(right, place))
    return findings


def outside(request: Request, folder: Path | None = None) -> list[tuple[Path, str]]:
    """(folder, flag) of each folder that the run fills outside its own."""
    plan = request.plan(folder)
    own = Path(plan.text(run_inputs.RUN_DIR))
    found = [(Path(plan.text(flag)).resolve(), flag) for flag in FILLED]
    return [(place, flag) for place, flag in found if own not in place.parents]


def _folders(request: Request, place: Place) -> Iterator[str]:
    """Folders that the user names."""
    working = request.args.working_dir
    if working and not place.job_address:
        yield Note("--working-dir is read by `ray job submit` only: set RAY_ADDRESS to http://HEAD:8265")
    elif working and not working.is_dir():
        yield f"--working-dir {working} is no folder. Make it: `real-openrlhf patch export`."
    logs = Path(request.plan().text(LOGS))
    if not preflight.existing(logs).is_dir():
        yield f"{LOGS} {logs}: {preflight.existing(logs)} is a file. Name a folder."
    own = Path(request.plan().text(run_inputs.RUN_DIR))
    owner = ownership.owner_name(request.resumed) if request.resumed else None
    for folder, flag in outside(request):
        if folder in (own, *own.parents):
            yield f"{flag} {folder} has the run's folder in it. Name another folder."
        elif wrong := ownership.folder_problem(folder, flag, owner):
            yield wrong


def _flags(request: Request, findings: Findings) -> dict[str, str]:
    """{flag: what is wrong with it}"""
    wrong = {}
    try:
        assert_applied()
        wrong = dict(flag_checks.flag_problems(request.plan(), request.removed, OPTIONS))
        findings.problems += wrong.values()
        note = flag_checks.combination(request.without(wrong).plan())
        findings.notes += [note] if request.args.dry_run and not wrong else []
    except UserError as error:
        findings.problems += error.problems
    return wrong


def data(request: Request, elsewhere: bool = False) -> Iterator[str]:
    """Check the files that exist. A run makes the missing ones, then checks again."""
    plan, missing = request.plan(), set(map(str, request.missing()))
    for flag in (run_inputs.TRAINING, run_inputs.VALIDATION):
        if flag in plan.flags:
            if plan.text(flag) in missing:  # the run will make it
                row = dict.fromkeys(data_check.COLUMNS.values())
                yield from (f"{flag} {plan.text(flag)} {fault}" for fault in data_check.Rows(plan, flag).lacking(row))
            else:
                yield from data_check.check(plan, flag, elsewhere)
    own = request.args.data is not None and request.args.data not in TRAINING_ROWS
    if own and run_inputs.VALIDATION in plan.flags and plan.flags[run_inputs.VALIDATION].origin != USER:
        yield Note(
            f"validation stays on {short_path(plan.text(run_inputs.VALIDATION))}, the recipe's: for your own data "
            "give --eval.dataset FILE, with the columns of --data"
        )
    there = preflight.existing(cache_folder())
    if any(cache_folder() in Path(path).parents for path in missing) and not os.access(there, os.W_OK | os.X_OK):
        yield run_inputs.unwritten_cache(f"nothing can be made in {there}")
    if request.args.dry_run and missing:
        yield Note(f"made before training starts: {', '.join(map(short_path, sorted(missing)))}")
    if (rows := run_inputs.training_rows(plan.text(run_inputs.TRAINING))) is not None:
        yield from data_check.step_problems(plan, rows)


def _model(request: Request, place: Place, elsewhere: bool) -> Iterator[str]:
    """Whether the model exists, and whether it fits into memory and disk."""
    plan = request.plan()
    model = plan.text(run_inputs.MODEL)
    made = Path(model) in request.missing()
    config = None
    try:
        config = None if made else model_check.read_config(model)
    except model_check.Unreachable as error:
        yield Note(f"{error.said}: its existence was not checked") if elsewhere else str(error)
    except UserError as error:
        yield from error.problems
    if config is not None:
        yield from model_check.problems(plan, config, place.on_cpu, elsewhere)
    shape = memory_estimate.shape_of(config or memory_estimate.KNOWN_CONFIGS.get(model, {}))
    if shape is None:
        if request.args.dry_run and not made:
            yield Note(f"no estimate of memory and disk: the shape of {short_path(model)} is not known here")
        return
    gpu_gb = place.gpu_gb or request.recipe.gpu_gb
    yield from memory_estimate.check(shape, plan, gpu_gb, place.gpu_gb is not None, place.on_cpu)
    if not (place.on_cpu or request.args.fill):
        yield from memory_estimate.fill_line(shape, plan, gpu_gb)
    yield Line("")
    existing = preflight.existing(request.args.runs_dir)
    free, size = shutil.disk_usage(existing).free, sum(memory_estimate.disk(shape, plan).values())
    if size > free:
        said = (
            f"the run folder will take {size / 1e9:.1f} GB, {existing} has {free / 1e9:.1f} GB free: another "
            "--runs-dir, or a smaller --ckpt.max_num"
        )
        yield Note(said) if place.address or elsewhere else said


def _resumed(request: Request, place: Place) -> Iterator[str]:
    folder = request.resumed
    if folder is None:
        run_folder.refuse_name(request.args.runs_dir, request.args.run_name)
        other = request.left_alone
        if other and (differing := run_inputs.trains_other(run_folder.read(other), request.plan())):
            told = ", ".join(f"{flag} {old}, here {new}" for flag, (old, new) in differing.items())
            yield Note(
                f"this is a new run. {other} is unfinished and trains something else ({told}): "
                f"--run-name {other.name} --resume continues it"
            )
        return
    record = run_folder.read(folder)
    if run_folder.stem_of(record) != request.stem:
        yield (
            f"{folder} is a run of {run_folder.stem_of(record)}, not of {request.stem}. Resume it with its own "
            "recipe, algorithm and seed, or choose another --run-name."
        )
    # A resumed run must have the code with which it began; that its data changed is told.
    for key, changed in run_inputs.changed_files(record, request.plan()).items():
        said = f"{folder} began with {changed}"
        put_back = "Put the file back as it was, or start a new run with another --run-name."
        yield Note(f"{said}: it goes on with these") if key == "data" else f"{said}. {put_back}"
    plan, ranks = request.plan(), set()
    for checkpoint in Path(plan.text("--ckpt.path")).glob("_actor/*/manifest.json"):
        about = whole_folders.manifest(checkpoint.parent) or {}
        ranks.add(about.get("ranks", plan.ranks))
        if (by := about.get("run", folder.name)) != folder.name:
            yield Note(f"{checkpoint.parent} was written by the run {by}")
    for others in () if plan.args.ds.use_universal_ckpt else ranks - {plan.ranks}:
        yield (
            f"{folder} has checkpoints of {others} GPUs, and this run has {plan.ranks}: DeepSpeed cannot divide the "
            f"optimizer anew. Give {others} in all (--gpus times --nodes)."
        )
    for what, was, is_now in provenance.changed_place(record, run_inputs.provenance_of(plan, place.environment(plan))):
        if what in reward_variables.GRADERS:
            yield (
                f"{folder} began with {what}={was}, and now it is {is_now}: its verdicts would change midway. Set "
                f"{what}={was}, or start a new run with another --run-name."
            )
        else:
            yield Note(
                f"since this run began {what} has changed from {was} to {is_now}: it goes on, but not bit for bit as "
                "it would have"
            )
    for flag, (old, new) in changed_flags(record, request.plan()).items():
        yield Note(f"since this run began {flag} has changed from {old} to {new}")
