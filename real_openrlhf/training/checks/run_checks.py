"""All checks of a run before it starts: what would crash it late, or spoil it without a word."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from real_openrlhf.base import atomic_dirs, reward_variables
from real_openrlhf.base.errors import BY_VARIABLE, KEY_VARIABLE, LOGIN, WANDB_KEY, UserError
from real_openrlhf.base.user_files import reward_problem
from real_openrlhf.patching import assert_applied
from real_openrlhf.recipes import openrlhf_parser
from real_openrlhf.recipes.recipes import TRAINING_ROWS
from real_openrlhf.recipes.run_flags import USER, RunFlags, changed_flags
from real_openrlhf.runs import provenance, run_folder
from real_openrlhf.training import run_inputs
from real_openrlhf.training.checks import data_check, flag_checks, memory_estimate, model_check
from real_openrlhf.training.checks.findings import Findings, Note
from real_openrlhf.training.launch_target import LaunchTarget
from real_openrlhf.training.run_inputs import OPTIONS, TRAINING, VALIDATION, Request


def findings(request: Request, target: LaunchTarget) -> Findings:
    every = Findings(where="The cluster" if target.address else "This machine")
    right = request.without(_flags(request, every))
    if not openrlhf_parser.defaults():
        return every  # without OpenRLHF there are no arguments to check
    flags, args, local = right.flags, right.args, target.address is None
    for check in (flag_checks.size_problems, _reward):
        every.add(check(flags))
    every.add(_for_gpus(flags) if request.recipe.on_cpu else ())
    every.add(reward_variables.variable_problems())
    every.add(_key(right))
    machine = [*target.launch_problems(flags)]
    if local and flags.args.ds.adam_offload and not shutil.which("g++"):
        machine.append("--ds.adam_offload: DeepSpeed compiles its Adam for the CPU, and there is no g++. Install it.")
    if args.dry_run and local and machine:
        every.elsewhere = target.lacks(flags) or "see the notes"
    every.add(machine, of_machine=True)
    every.add(data(right))
    every.add(_model(right, target, bool(every.elsewhere)))
    every.add(_resumed(right, target))
    return every


def _for_gpus(flags: RunFlags) -> Iterator[str]:
    """Flags with which a run on CPU would fail half a minute after its start."""
    vllm, attention = flags.args.vllm, flags.args.ds.attn_implementation
    needs = {"--vllm.enable_sleep": vllm.enable_sleep, "--vllm.sync_backend nccl": vllm.sync_backend == "nccl"}
    needs[f"--ds.attn_implementation {attention}"] = attention in ("flash_attention_2", "flash_attention_3")
    for flag in (flag for flag, given in needs.items() if given):
        yield f"{flag} needs a GPU, and this recipe is for CPU. Leave it out."


def _key(request: Request) -> Iterator[str]:
    """wandb's, which travels as a variable."""
    known = {**os.environ, **request.secrets}.get(KEY_VARIABLE)
    if not known and request.flags.args.logger.wandb.key == BY_VARIABLE:
        yield f"{WANDB_KEY} {BY_VARIABLE}: {KEY_VARIABLE} is not set. Type `export {KEY_VARIABLE}=...`."


def _reward(flags: RunFlags) -> Iterator[str]:
    """A fault of the file would show after the model is loaded."""
    for url in (flags.args.reward.remote_url or "").split(","):
        if url.endswith(".py") and (wrong := reward_problem(Path(url))):
            yield f"--reward.remote_url {url} {wrong}"
        elif LOGIN.search(url):
            yield "--reward.remote_url: OpenRLHF would print the password in it. Call that server from a file.py."


def _flags(request: Request, findings: Findings) -> dict[str, str]:
    """{flag: what is wrong with it}"""
    wrong = {}
    try:
        assert_applied()
        wrong = dict(flag_checks.flag_problems(request.flags, request.removed, OPTIONS))
        findings.problems += wrong.values()
        findings.notes += flag_checks.combination_notes(request.without(wrong).flags)
    except UserError as error:
        findings.problems += error.problems
    return wrong


def data(request: Request) -> Iterator[str]:
    """Check the files that exist. A run makes the missing ones, then checks again."""
    flags, missing = request.flags, set(map(str, request.missing()))
    checked = [flag for flag in (TRAINING, VALIDATION) if flag in flags.settings and flags.text(flag) not in missing]
    own = request.args.data not in (None, *TRAINING_ROWS)
    if own and VALIDATION in flags.settings and flags.settings[VALIDATION].origin != USER:
        message = (
            f"validation stays on {flags.text(VALIDATION)}, the recipe's: give --eval.dataset FILE with "
            "the columns of your --data, or --no-eval.dataset"
        )
        named = data_check.COLUMNS.keys() & request.user.keys()  # columns that the recipe's file lacks
        yield message if named else Note(message)
        checked = [TRAINING] if named else checked
    for flag in checked:
        yield from data_check.check(flags, flag)
    if request.args.dry_run and missing:
        yield Note(f"made before training starts: {', '.join(sorted(missing))}", "what is made before training")
    if (rows := run_inputs.training_rows(flags.text(TRAINING))) is not None:
        yield from data_check.step_problems(flags, rows)


def _model(request: Request, target: LaunchTarget, elsewhere: bool) -> Iterator[str]:
    """Whether the model exists, and whether it fits into memory and disk."""
    flags = request.flags
    model = flags.text(run_inputs.MODEL)
    config = memory_estimate.KNOWN_CONFIGS.get(model)
    if Path(model) not in request.missing():
        try:
            config = model_check.read_config(model)
            yield from model_check.model_problems(flags, config)
        except model_check.Unreachable as error:
            unchecked = "the model on the hub" if config else "the model on the hub and its memory"
            yield Note(error, unchecked) if elsewhere else str(error)
    if not (shape := memory_estimate.shape_of(config or {})):
        return
    if not target.on_cpu:
        yield from memory_estimate.check(shape, flags, target.gpu_gb or request.recipe.gpu_gb)
    runs_dir = Path(os.path.realpath(request.args.runs_dir))
    disk = next(path for path in (runs_dir, *runs_dir.parents) if path.exists())
    size, free = memory_estimate.disk(shape, flags) / 1e9, shutil.disk_usage(disk).free / 1e9
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
    for key, changed in run_inputs.changed_files(record, request.flags).items():
        begun = f"{folder} began with {changed}"
        put_back = "Put the file back as it was, or start a new run with another --run-name."
        yield Note(f"{begun}: it goes on with these") if key == "data" else f"{begun}. {put_back}"
    flags = request.flags
    manifests = (atomic_dirs.manifest(path.parent) for path in run_inputs.checkpoints(folder))
    for others in {(manifest or {}).get("ranks", flags.ranks) for manifest in manifests} - {flags.ranks}:
        if not flags.args.ds.use_universal_ckpt:
            yield (
                f"{folder} has checkpoints of {others} GPUs, and this run has {flags.ranks}: DeepSpeed cannot divide "
                f"the optimizer anew. Give {others} in all (--gpus times --nodes)."
            )
    before, now = record.get("variables") or {}, provenance.variables(target.environment(flags))
    for name in reward_variables.GRADERS:
        if (was := before.get(name, now[name])) != now[name]:
            yield (
                f"{folder} began with {name}={was}, and now it is {now[name]}: labels would change. Set {name}={was}."
            )
    for flag, (old, new) in changed_flags(record, flags).items():
        yield Note(f"since this run began {flag} has changed from {old} to {new}")
