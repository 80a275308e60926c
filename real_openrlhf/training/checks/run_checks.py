"""All checks of a run before it starts: what would crash it late, or spoil it without a word."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from real_openrlhf.base.files import amount
from real_openrlhf.base.parsing import number_of
from real_openrlhf.base.run_files import RECORD
from real_openrlhf.base.secrets import BY_VARIABLE, KEY_VARIABLE, LOGIN, REWARD, WANDB_KEY
from real_openrlhf.base.user_files import reward_problem
from real_openrlhf.data.sources import TRAINING_SETS, is_hub_name
from real_openrlhf.flags.refusals import gpu_problems, notes, size_problems
from real_openrlhf.forecast import duration, memory
from real_openrlhf.forecast.duration import Bill
from real_openrlhf.machine import doctor, nvidia
from real_openrlhf.recipes.run import MODEL, TRAINING, VALIDATION
from real_openrlhf.rewards import variables
from real_openrlhf.runs import provenance, run_folder, run_record
from real_openrlhf.training import inputs, tiny_task
from real_openrlhf.training.checks import Findings, Note, data_check, model_check
from real_openrlhf.training.start import Start
from real_openrlhf.training.trainer_process import LONGEST, scratch_base

SCRATCH_BYTES = 30e6  # that a run on one machine leaves for its logs and sockets


def _flags(start: Start) -> Iterator[str]:
    """Wrong flags were left out of the run, so that the other checks go on."""
    args = start.run.args
    yield from start.run.problems
    yield from map(Note, notes(args))
    yield from size_problems(args)
    yield from gpu_problems(args) if start.target.on_cpu else ()


def _reward(start: Start) -> Iterator[str]:
    """A fault of the file would show after the model is loaded."""
    only_read = start.request.args.dry_run and not start.request.args.rehearse
    yield from variables.variable_problems()
    for url in start.run.text(REWARD).split(","):
        if url.endswith(".py") and (wrong := reward_problem(Path(url))):
            yield f"--reward.remote_url {url} {wrong}"
        elif url and not url.endswith(".py") and not url.startswith(("http://", "https://")):
            yield f"--reward.remote_url {url} is neither a FILE.py nor an address with http://. Give one of these."
        elif LOGIN.search(url):
            yield "--reward.remote_url: OpenRLHF would print the password in it. Call that server from a file.py."
        elif url.endswith(".py") and only_read and provenance.PACKAGE not in Path(url).parents:
            yield Note(f"{url} was read, not run: try its reward_func yourself", f"{Path(url).name} (not run)")


def _key(start: Start) -> Iterator[str]:
    """wandb's, which travels as a variable."""
    if not start.environment.get(KEY_VARIABLE) and start.run.args.logger.wandb.key == BY_VARIABLE:
        yield f"{WANDB_KEY} {BY_VARIABLE}: {KEY_VARIABLE} is not set. Type `export {KEY_VARIABLE}=...`."


def _machine(start: Start) -> Iterator[str]:
    yield from map(Note, start.lacking) if start.elsewhere else start.lacking


def _places(start: Start) -> Iterator[str]:
    """Write where the run will write: it would say so late, and of a full folder for temporary files never."""
    request, cache = start.request, tiny_task.cache_folder()
    places = {request.folder / RECORD: "Name another --runs-dir."}
    for path in request.missing():
        variable = "REAL_CACHE" if "REAL_CACHE" in os.environ else "HOME"
        ours = cache in path.parents
        places[path] = f"Set {variable} to a folder with space." if ours else "Name another --data-dir."
    if start.target.address is None:
        base = Path(scratch_base(start.environment))
        places[base / "real_"] = other = f"Set TMPDIR to another folder, of at most {LONGEST - 14} letters."
        if (free := shutil.disk_usage(base).free) < SCRATCH_BYTES:
            yield f"Ray needs {amount(SCRATCH_BYTES)} for temporary files, {base} has {amount(free)} free. {other}"
    folders = {next(filter(os.path.lexists, path.resolve().parents)): other for path, other in places.items()}
    for folder, other in folders.items():
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            message = f"cannot write to {folder}: {error.strerror}. {other}"
            yield Note(message) if start.elsewhere else message


def data(start: Start) -> Iterator[str]:
    """Check the files that exist. A run makes the missing ones, then checks again."""
    request, run, missing = start.request, start.run, set(map(str, start.request.missing()))
    checked = [flag for flag in (TRAINING, VALIDATION) if flag in run.flags and run.text(flag) not in missing]
    ours = [inputs.training_set(name, request.args.data_dir) for name in TRAINING_SETS]
    own = run.given(TRAINING) and Path(run.text(TRAINING)) not in ours
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
    if request.rows is not None:
        yield from data_check.step_problems(run.args, request.rows)


def _model(start: Start) -> Iterator[str]:
    """Whether the model exists, and whether it fits into memory and disk."""
    request, run, target, elsewhere = start.request, start.run, start.target, bool(start.elsewhere)
    model = run.text(MODEL)
    if start.run.problems and is_hub_name(model, "model"):
        return  # a wrong flag is told at once
    config = memory.KNOWN_CONFIGS.get(model)
    if Path(model) not in request.missing():
        try:
            config = model_check.read_config(model)
            yield from model_check.model_problems(run.args, config)
        except model_check.Unreachable as error:
            unchecked = "the model on the hub" if config else "the model on the hub and its memory"
            yield Note(error, unchecked) if elsewhere else str(error)
    if not (shape := memory.shape_of(config or {})):
        why = "the sums are of dense models" if config else "name a folder with the model's config.json"
        yield from () if target.on_cpu else [Note(f"no estimate of memory, time and disk: {why}")]
        return
    size = memory.disk(shape, run.args)
    if not target.on_cpu:
        gpu_gb = target.gpu_gb or request.recipe.gpu_gb
        if "quantization_config" not in (config or {}):
            yield from memory.engine_problems(shape, run.args, gpu_gb)
        yield Note(memory.forecast(shape, run.args, gpu_gb))
        card = duration.card_of(nvidia.gpu_names(), gpu_gb)
        _, hours, dollars = duration.spans(shape, run.args, card)
        bill = Bill(hours, dollars, size) if run.args.train.max_steps else None  # 0: by the data's rows
        yield Note(duration.forecast(shape, run.args, card), bill=bill)
        yield from _host_memory(start, *memory.pinned(shape, run.args))
    runs_dir = Path(os.path.realpath(request.args.runs_dir))
    disk = next(path for path in (runs_dir, *runs_dir.parents) if path.exists())
    if size > (free := shutil.disk_usage(disk).free):
        message = f"the run folder will take {amount(size)}, {disk} has {amount(free)} free: another "
        message += "--runs-dir, or a smaller --ckpt.max_num"
        yield Note(message) if target.address or elsewhere else message


def _host_memory(start: Start, least: float, most: float) -> Iterator[str]:
    """The kernel would kill the run in its first sleep."""
    needed = f"host memory per node: {amount(least)} to {amount(most)} for what sleeps, beside the processes"
    available = float("inf") if start.target.address or start.elsewhere else doctor.available_memory()
    if least > available:
        yield f"{needed}. Available: {amount(available)}. Take a machine or container with more."
    elif most:
        yield Note(needed + f". It may not fit: {amount(available)} are available" * (most > available))


def _resumed(start: Start) -> Iterator[str]:
    request, run, folder, record = start.request, start.run, start.request.resumed, start.before
    if folder is None or record is None:
        runs, name = request.args.runs_dir, request.args.run_name
        run_folder.refuse_name(runs, name)
        if request.args.resume and name:
            near = run_folder.near_name(runs, name, request.stem)
            other = run_record.changed_flags(run_folder.read(near), run) if near else {}
            if near and request.args.by_name and not other.keys() & {*request.user, *request.removed}:
                begin = "leave out --resume (scripts: RESUME=0)"
                yield f"there is no run {request.folder}. To continue {near}, name it; to begin a new run, {begin}."
            else:
                rest = f". {near} is unfinished" if near else ": nothing to continue"
                yield Note(f"{request.folder} is new{rest}")
        return
    if run_folder.stem_of(record) != request.stem:
        yield (
            f"{folder} is a run of {run_folder.stem_of(record)}, not of {request.stem}. Resume it with its own "
            "recipe, algorithm and seed, or choose another --run-name."
        )
    # A resumed run must have the code with which it began; that its data changed is told.
    for key, changed in run_record.changed_files(record, run).items():
        begun = f"{folder} began with {changed}"
        put_back = "Put the file back as it was, or start a new run with another --run-name."
        yield Note(f"{begun}: it goes on with these") if key == "data" else f"{begun}. {put_back}"
    manifests, ranks = run_record.checkpoints(folder), run.layout.ranks
    if not start.is_finished:
        step = max((manifest["global_step"] for manifest in manifests), default=0)
        yield Note(f"{folder} goes on after step {step}, from {'its last checkpoint' if step else 'the beginning'}")
    for others in {manifest.get("ranks", ranks) for manifest in manifests} - {ranks}:
        if not run.args.ds.use_universal_ckpt:
            yield (
                f"{folder} has checkpoints of {number_of(others, 'GPU')}, and this run has {ranks}: DeepSpeed cannot "
                f"divide the optimizer anew. Give {others} in all (--gpus times --nodes)."
            )
    before, now = record.get("variables") or {}, start.variables
    for name in variables.DEFAULTS:
        if (was := before.get(name, now[name])) != now[name]:
            yield (
                f"{folder} began with {name}={was}, and now it is {now[name]}: labels would change. Set {name}={was}."
            )
    for flag, (old, new) in start.changed.items():
        yield Note(f"since this run began {flag} has changed from {old} to {new}")


CHECKS: tuple[Callable[[Start], Iterator[str]], ...] = (
    _flags,
    _reward,
    _key,
    _machine,
    _places,
    data,
    _model,
    _resumed,
)


def findings(start: Start) -> Findings:
    """What every check finds, in this order."""
    every = Findings("The cluster" if start.target.address else "This machine", start.elsewhere)
    for check in CHECKS:
        every.add(check(start))
    return every
