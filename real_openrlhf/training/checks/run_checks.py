"""All checks of a run before it starts. Each check adds its findings, and each fault is reported once."""

import os
import shutil
from pathlib import Path

from real_openrlhf.base import ownership, whole_folders
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.lines import short_path
from real_openrlhf.base.reward_variables import GRADERS
from real_openrlhf.machine.doctor import within_container
from real_openrlhf.patching import assert_applied
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
    token_budgets,
)
from real_openrlhf.training.checks.preflight import Findings
from real_openrlhf.training.launch.place import Place
from real_openrlhf.training.run_inputs import OPTIONS, Request
from real_openrlhf.training.tasks import gguf_model
from real_openrlhf.training.tasks.tiny_model import cache_folder

FILLED = ("--ckpt.path", "--ckpt.output_dir")


def found(request: Request, place: Place) -> Findings:
    findings = Findings()
    right = request.without(_flags(request, findings))
    plan, args, local = right.plan(), right.args, place.address is None
    for problems in (flag_checks.batch_problems, flag_checks.length_problems, reward_check.reward_problems):
        findings.problems += problems(plan)
    findings.notes += flag_checks.unread(plan)
    machine = place.problems(plan) + (preflight.kernel_problems(plan) if local else [])
    findings.elsewhere = bool(args.dry_run and local and machine)  # a dry run may be for another machine
    of_machine = findings.notes if findings.elsewhere else findings.problems
    of_machine += machine
    findings.notes += [] if place.on_cpu or not local else preflight.allocator_notes()
    findings.problems += preflight.secret_problems(plan, request.secrets, place.address, place.job_address)
    if args.working_dir and not place.job_address:
        findings.notes.append("--working-dir is read by `ray job submit` only: set RAY_ADDRESS to http://HEAD:8265")
    elif args.working_dir and not args.working_dir.is_dir():
        findings.problems.append(
            f"--working-dir {args.working_dir} is no folder. Make it: `real-openrlhf patch export`."
        )
    findings.lines += preflight.kernels(plan, place.on_cpu)
    unusable = preflight.folder_problems(args.runs_dir)
    findings.problems += unusable
    if local and not unusable:
        of_machine += preflight.room_problems(args.runs_dir)
    # a cluster may reach servers that this machine does not
    (of_machine if local else findings.notes).extend(reward_check.server_problems(plan))
    findings.problems += [wrong for place, flag in outside(right) if (wrong := _folder_problem(right, place, flag))]
    data(right, findings)
    _size(right, place, findings)
    _resumed(right, place, findings)
    return findings


def outside(request: Request, folder: Path | None = None) -> list[tuple[Path, str]]:
    """(folder, flag) of each folder that the run fills outside its own."""
    plan = request.plan(folder)
    own = Path(plan.text(run_inputs.RUN_DIR))
    found = [(Path(plan.text(flag)).resolve(), flag) for flag in FILLED]
    return [(place, flag) for place, flag in found if own not in place.parents]


def _folder_problem(request: Request, place: Path, flag: str) -> str | None:
    if place in (own := Path(request.plan().text(run_inputs.RUN_DIR)), *own.parents):
        return f"{flag} {place} has the run's folder in it. Name another folder."
    owner = ownership.owner_name(request.resumed) if request.resumed else None
    return ownership.folder_problem(place, flag, owner)


def _flags(request: Request, findings: Findings) -> dict[str, str]:
    """{flag: what is wrong with it}"""
    wrong = {}
    try:
        assert_applied()
        wrong = flag_checks.flag_problems(request.plan(), request.removed, OPTIONS)
        findings.problems += wrong.values()
        note = flag_checks.combination(request.without(wrong).plan())
        findings.notes += [note] if request.args.dry_run and not wrong else []
    except UserError as error:
        findings.problems += error.problems
    return wrong


def data(request: Request, findings: Findings) -> None:
    """Check the files that exist. A run makes the missing ones, then checks again."""
    plan, missing = request.plan(), set(map(str, request.missing()))
    for flag in (run_inputs.TRAINING, run_inputs.VALIDATION):
        if flag in plan.flags:
            check = data_check.made_findings if plan.text(flag) in missing else data_check.data_findings
            check(plan, flag, findings)
    own = request.args.data is not None and request.args.data not in TRAINING_ROWS
    if own and run_inputs.VALIDATION in plan.flags and plan.flags[run_inputs.VALIDATION].origin != USER:
        findings.notes.append(
            f"validation stays on {short_path(plan.text(run_inputs.VALIDATION))}, the recipe's: for your own data "
            "give --eval.dataset FILE, with the columns of --data"
        )
    there = preflight.existing(cache_folder())
    if any(cache_folder() in Path(path).parents for path in missing) and not os.access(there, os.W_OK | os.X_OK):
        findings.problems.append(run_inputs.unwritten_cache(f"nothing can be made in {there}"))
    if request.args.dry_run:
        findings.notes += [f"made before training starts: {', '.join(map(short_path, sorted(missing)))}"] * bool(
            missing
        )
    if (rows := run_inputs.training_rows(plan.text(run_inputs.TRAINING))) is not None:
        findings.problems += data_check.step_problems(plan, rows)


def _size(request: Request, place: Place, findings: Findings) -> None:
    """Whether the model exists, and whether it fits into memory and disk."""
    plan = request.plan()
    model = plan.text(run_inputs.MODEL)
    made = Path(model) in request.missing()
    if request.args.model and gguf_model.is_one(request.args.model):
        wrong = gguf_model.problem(Path(request.args.model).expanduser())
        findings.problems += [wrong] if wrong else []
    config = None if made else model_check.model_findings(model, findings, must_reach=not findings.elsewhere)
    if config is not None:
        model_check.folder_findings(plan, config, findings)
        findings.problems += [f"model {model}: {wrong}" for wrong in model_check.unfit_problems(plan, config)]
        if place.on_cpu and (wrong := model_check.heads_problem(config)):
            findings.problems.append(f"model {model}: {wrong}")
    shape = memory_estimate.shape_of(config or memory_estimate.KNOWN_CONFIGS.get(model, {}))
    if shape is None:
        if request.args.dry_run and not made:
            findings.notes.append(
                f"no estimate of memory and disk: the shape of {short_path(model)} is not known here"
            )
        return
    measured = place.gpu_gb is not None
    machine = float(within_container(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    host = machine if measured and not place.address else None
    gpu_gb = place.gpu_gb or request.recipe.gpu_gb
    lines, warnings = memory_estimate.report(shape, plan, gpu_gb, measured, host, place.on_cpu)
    if not (place.on_cpu or request.args.fill):
        lines += token_budgets.line(shape, plan, gpu_gb)
    existing = preflight.existing(request.args.runs_dir)
    free, size = shutil.disk_usage(existing).free, sum(memory_estimate.disk(shape, plan).values())
    if size > free:
        (warnings if findings.elsewhere or place.address else findings.problems).append(
            f"the run folder will take {size / 1e9:.1f} GB, {existing} has {free / 1e9:.1f} GB free: another "
            "--runs-dir, or a smaller --ckpt.max_num"
        )
    findings.lines += [*lines, ""]
    findings.notes += warnings


def _resumed(request: Request, place: Place, findings: Findings) -> None:
    folder = request.resumed
    if folder is None:
        try:
            run_folder.refuse_name(request.args.runs_dir, request.args.run_name)
        except UserError as error:
            findings.problems += error.problems
        return
    record = run_folder.read(folder)
    if run_folder.stem_of(record) != request.stem:
        findings.problems.append(
            f"{folder} is a run of {run_folder.stem_of(record)}, not of {request.stem}. Resume it with its own "
            "recipe, algorithm and seed, or choose another --run-name."
        )
    # A resumed run must have the objective, label rule and agent with which it began.
    before = objective if isinstance(objective := record.get("objective"), dict) else {}
    now = provenance.hashes(run_inputs.objective_files(request.plan().flags))
    if sorted(before.values()) != sorted(now.values()):
        said = [", ".join(f"{path} ({sha[:12]})" for path, sha in one.items()) or "none" for one in (before, now)]
        findings.problems.append(
            f"{folder} began with another objective, rule for labels or agent of your own: {said[0]}, "
            f"now {said[1]}. Put the file back as it was, or start a new run with another --run-name."
        )
    for checkpoint in Path(request.plan().text("--ckpt.path")).glob("_actor/*/manifest.json"):
        by = (whole_folders.manifest(checkpoint.parent) or {}).get("run", folder.name)
        if by != folder.name:
            findings.notes.append(f"{checkpoint.parent} was written by the run {by}")
    plan = request.plan()
    for what, was, is_now in provenance.changed_place(record, run_inputs.provenance_of(plan, place.environment(plan))):
        if what in GRADERS:
            findings.problems.append(
                f"{folder} began with {what}={was}, and now it is {is_now}: its verdicts would change midway. Set "
                f"{what}={was}, or start a new run with another --run-name."
            )
        else:
            findings.notes.append(
                f"since this run began {what} has changed from {was} to {is_now}: it goes on, but not bit for bit as "
                "it would have"
            )
    for flag, (old, new) in changed_flags(record, request.plan()).items():
        findings.notes.append(f"since this run began {flag} has changed from {old} to {new}")
