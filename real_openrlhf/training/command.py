"""`real-openrlhf train`: a recipe, an algorithm and any OpenRLHF flag become one checked command in a run folder.

The command is OpenRLHF's own (`python -m openrlhf.cli.train_ppo_ray FLAGS`); nothing is hidden behind it.
"""

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from real_openrlhf import __version__
from real_openrlhf.errors import UserError, on_one_line
from real_openrlhf.files import FINISHED
from real_openrlhf.parsing import PassThrough, whole
from real_openrlhf.patching import assert_applied
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import Plan, compose
from real_openrlhf.recipes.recipes import RECIPES, TRAINING_ROWS
from real_openrlhf.recipes.records import changed_flags, flag_lines, in_words, is_finished, recorded_flags, typed
from real_openrlhf.recipes.setting import Recipe, Setting
from real_openrlhf.runs import provenance, run_folder
from real_openrlhf.training import run_inputs
from real_openrlhf.training.checks import data_check, memory_estimate, model_check, preflight
from real_openrlhf.training.launch import forked_workers, processes, shared_ray
from real_openrlhf.training.launch.place import TRAINER, Place
from real_openrlhf.training.launch.process import LIMIT, Watch, drop_stale_locks, supervise
from real_openrlhf.training.launch.progress import Progress, end_unwatched, final_summary

FULL_BYTES = 1 << 20
SHORTHANDS = {
    "model": run_inputs.MODEL,
    "data": run_inputs.TRAINING,
    "seed": "--train.seed",
    "max-steps": "--train.max_steps",
    "gpus": "--actor.num_gpus_per_node",
    "nodes": "--actor.num_nodes",
}
OPTIONS = [f"--{name}" for name in (*SHORTHANDS, "recipe", "algo", "dry-run", "resume", "run-name", "runs-dir")]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.__class__ = PassThrough
    parser.allow_abbrev = False
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "%(prog)s [--recipe NAME] [--algo NAME] [--dry-run] [any OpenRLHF flag]"
    parser.epilog = _epilog()
    parser.add_argument(
        "--recipe", choices=RECIPES, default="cpu", metavar="NAME", help="see below (default: %(default)s)"
    )
    parser.add_argument(
        "--algo", choices=ALGORITHMS, default="real", metavar="NAME", help="see below (default: %(default)s)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print and check every flag, estimate memory, start nothing"
    )
    parser.add_argument("--model", help="a folder, a hub id, a GGUF file, or smollm2 (default: the recipe's model)")
    parser.add_argument(
        "--data", metavar="SET", help=f"{', '.join(TRAINING_ROWS)}, or your own JSONL file (default: the recipe's)"
    )
    parser.add_argument(
        "--data-dir", type=Path, default=Path("data"), help="folder of prepared sets (default: %(default)s)"
    )
    parser.add_argument("--seed", type=whole, metavar="N", help="seed of data order, sampling and initialisation")
    parser.add_argument("--max-steps", type=whole, metavar="N", help="rollout steps; 0: all of the data")
    parser.add_argument("--gpus", type=whole, metavar="N", help="GPUs of each node")
    parser.add_argument(
        "--nodes", type=whole, metavar="N", help="nodes; more than one needs a Ray cluster, named by RAY_ADDRESS"
    )
    parser.add_argument(
        "--working-dir", type=Path, help="folder for `ray job submit`, made by `real-openrlhf patch export`"
    )
    parser.add_argument(
        "--runs-dir", type=Path, default=Path("runs"), help="folder of run folders (default: %(default)s)"
    )
    parser.add_argument("--run-name", help="name of the run folder (default: recipe, algorithm, seed and time)")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the newest unfinished run from its last checkpoint, or start one",
    )


def _epilog() -> str:
    width = max(map(len, [*RECIPES, *ALGORITHMS]))
    return "\n".join(
        [
            "recipes:",
            *(f"  {recipe.name:{width}}  {recipe.about}" for recipe in RECIPES.values()),
            "algorithms:",
            *(f"  {algorithm.name:{width}}  {algorithm.about}" for algorithm in ALGORITHMS.values()),
            "OpenRLHF's own flags win over the recipe, and --no-FLAG removes one from it. All flags:",
            "  python -m openrlhf.cli.train_ppo_ray --help",
        ]
    )


@dataclass(frozen=True)
class Request:
    """A parsed command line; the plan follows from it and from the run's folder."""

    args: argparse.Namespace
    recipe: Recipe
    user: dict[str, tuple[str, ...]]
    removed: list[str]
    stem: str
    resumed: Path | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> "Request":
        recipe = RECIPES[args.recipe]
        flags, removed = preflight.split_flags(args.openrlhf)
        user: dict[str, tuple[str, ...]] = {}
        for name, flag in SHORTHANDS.items():
            value = getattr(args, name.replace("-", "_"))
            if value is not None and flag in flags:
                raise UserError(f"--{name} and {flag} say the same thing. Give one of them.")
            if value is not None:
                user[flag] = (str(run_inputs.by_name(name, value, args.data_dir)),)
        user |= run_inputs.found_anywhere(flags)
        seed = user.get("--train.seed") or recipe.settings["--train.seed"].words
        stem = run_folder.run_stem(recipe.name, args.algo, seed[0])
        resumed = run_folder.to_resume(args.runs_dir, stem, args.run_name) if args.resume else None
        return cls(args, recipe, user, removed, stem, resumed)

    def plan(self, folder: Path | None = None) -> Plan:
        """The flags; without a folder, those of a run that has no name yet."""
        folder = folder or self.resumed or self.args.runs_dir / (self.args.run_name or f"{self.stem}-TIME")
        inputs = run_inputs.settings(self.recipe, self.args.data_dir)
        launcher = {**inputs, **_folder_flags(Path(os.path.realpath(folder)), self.resumed is not None)}
        data = " ".join(self.user.get(run_inputs.TRAINING, inputs[run_inputs.TRAINING].words))
        algorithm, rows = ALGORITHMS[self.args.algo], run_inputs.rows(Path(data))
        return compose(self.recipe, algorithm, self.user, self.removed, launcher, rows)

    def without(self, wrong: Container[str]) -> "Request":
        """Wrong flags are told once; the other checks go on with the recipe's values."""
        user = {flag: words for flag, words in self.user.items() if flag not in wrong}
        return replace(self, user=user, removed=[flag for flag in self.removed if flag not in wrong])

    def missing(self) -> list[run_inputs.Prepared]:
        return run_inputs.missing(self.recipe, self.args.data_dir, self.plan().flags, self.args.model)


def _folder_flags(folder: Path, resumed: bool) -> dict[str, Setting]:
    origin = "run folder"
    flags = {
        "--train.run_dir": Setting((str(folder),), origin, "metrics.jsonl"),
        "--logger.tensorboard_dir": Setting((str(folder / "tensorboard"),), origin),
        "--ckpt.path": Setting((str(folder / "checkpoints"),), origin),
        "--ckpt.output_dir": Setting((str(folder / "model"),), origin, "the final weights"),
    }
    if resumed:
        flags["--ckpt.load_enable"] = Setting((), origin, "continue from the last checkpoint")
    return flags


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line, for those who train from Python."""
    parser = argparse.ArgumentParser(prog="real-openrlhf train")
    configure(parser)
    return parser.parse_args(words)


def request_of(words: Sequence[str]) -> Request:
    return Request.of(parse(words))


def run(args: argparse.Namespace, session: Path | None = None) -> int:
    """In a process of its own; with `session`, the socket of a shared Ray (shared_ray.py), inside that."""
    request = Request.of(args)
    place = Place.of(request.recipe, args.working_dir)
    if request.resumed and not args.dry_run and (unseen := end_unwatched(request.resumed)):
        print(f"{unseen}\n")
    _show(request, place)
    findings = preflight.Findings()
    wrong = _check_flags(request, findings)
    _check_rest(request.without(wrong), place, findings)
    if not findings.problems and not args.dry_run and request.missing():
        model = request.plan().text(run_inputs.MODEL)
        for file in request.missing():
            if not file.path.exists():  # the tiny task's files are made together
                file.make(model)
        _check_data(request, findings)
    for note in findings.notes:
        print(f"note: {note}")
    if findings.problems:
        print(f"{len(findings.problems)} wrong:", file=sys.stderr)
        for problem in findings.problems:
            print(f"  - {on_one_line(problem)}", file=sys.stderr)
        return 2
    if args.dry_run:
        print("dry run: nothing is wrong, nothing was started")
        return 0
    if request.resumed and is_finished(request.resumed, request.plan()):
        print(f"{request.resumed} is finished: there is nothing to continue\n\n{final_summary(request.resumed)}")
        return 0
    return _train(request, place, session)


def _check_flags(request: Request, findings: preflight.Findings) -> dict[str, str]:
    """{flag: what is wrong with it}"""
    try:
        if not request.args.dry_run:
            assert_applied()
        wrong = preflight.flag_problems(request.plan(), request.removed, OPTIONS)
        findings.problems += wrong.values()
        together = preflight.combination(request.without(wrong).plan())
        findings.problems += together.problems
        findings.notes += together.notes if request.args.dry_run and not wrong else []
        return wrong
    except UserError as error:
        findings.problems += error.problems
        return {}


def _check_rest(request: Request, place: Place, findings: preflight.Findings) -> None:
    plan, dry_run = request.plan(), request.args.dry_run
    findings.problems += preflight.batch_problems(plan)
    findings.problems += preflight.length_problems(plan)
    findings.problems += preflight.reward_problems(plan)
    machine = place.problems(plan) + ([] if place.address else preflight.kernel_problems(plan))
    if dry_run:
        print("\n".join(preflight.kernels(plan)))
    if dry_run and place.address is None:
        findings.notes += machine  # a dry run is for every machine
    else:
        findings.problems += machine
    if unusable := preflight.folder_problems(request.args.runs_dir):
        findings.problems += unusable
    elif not dry_run and place.address is None:
        findings.problems += preflight.room_problems(request.args.runs_dir)
    _check_data(request, findings)
    _check_size(request, place, findings)
    if request.resumed:
        _check_resumed(request, request.resumed, findings)
    else:
        try:
            run_folder.refuse_name(request.args.runs_dir, request.args.run_name)
        except UserError as error:
            findings.problems += error.problems


def _check_data(request: Request, findings: preflight.Findings) -> None:
    plan, missing = request.plan(), {str(file.path) for file in request.missing()}
    for flag in (run_inputs.TRAINING, run_inputs.VALIDATION):
        if flag in plan.flags and plan.text(flag) not in missing:
            data_check.data_findings(plan, flag, findings)
    if request.args.dry_run:
        findings.notes += [f"{path} is made before training starts" for path in sorted(missing)]
    findings.problems += data_check.step_problems(plan, run_inputs.rows(Path(plan.text(run_inputs.TRAINING))))


def _check_size(request: Request, place: Place, findings: preflight.Findings) -> None:
    """Does the model exist, and will it fit; the sums are printed in a dry run, their warnings always."""
    plan, dry_run = request.plan(), request.args.dry_run
    model = plan.text(run_inputs.MODEL)
    config = None
    if all(str(file.path) != model for file in request.missing()):
        config = model_check.model_findings(model, findings, must_reach=not dry_run)
    if config is not None:
        model_check.folder_findings(plan, config, findings, dry_run)
        if place.on_cpu and (wrong := model_check.heads_problem(config)):
            findings.problems.append(f"model {model}: {wrong}")
    shape = memory_estimate.shape_of(config or memory_estimate.KNOWN_CONFIGS.get(model, {}))
    if shape is None:
        if dry_run:
            findings.notes.append(f"no estimate of memory and disk: the shape of {model} is not known here")
        return
    measured = place.gpu_gb is not None
    machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    host = machine if measured and not place.address else None
    lines, warnings = memory_estimate.report(shape, plan, place.gpu_gb or request.recipe.gpu_gb, measured, host)
    existing = preflight.existing(request.args.runs_dir)
    free, size = shutil.disk_usage(existing).free, sum(memory_estimate.disk(shape, plan).values())
    if size > free:
        warnings.append(
            f"the run folder will take {size / 1e9:.0f} GB, {existing} has {free / 1e9:.0f} GB free: another "
            "--runs-dir, or a smaller --ckpt.max_num"
        )
    if dry_run:
        print("\n".join(lines) + "\n")
    findings.notes += warnings


def _check_resumed(request: Request, folder: Path, findings: preflight.Findings) -> None:
    record = run_folder.read(folder)
    if run_folder.stem_of(record) != request.stem:
        findings.problems.append(
            f"{folder} is a run of {run_folder.stem_of(record)}, not of {request.stem}. Resume it with its own "
            "recipe, algorithm and seed, or choose another --run-name."
        )
    _check_objective(request, record, findings)
    for flag, (before, after) in changed_flags(record, request.plan()).items():
        findings.notes.append(f"since this run began {flag} has changed from {before} to {after}")


def _check_objective(request: Request, record: dict, findings: preflight.Findings) -> None:
    """Half a run with one formula and half with another is a run of neither."""
    before = objective if isinstance(objective := record.get("objective"), dict) else {}
    now = provenance.hashes(run_inputs.objective_files(request.plan().flags))
    if sorted(before.values()) != sorted(now.values()):
        said = [", ".join(f"{path} ({sha[:12]})" for path, sha in one.items()) or "none" for one in (before, now)]
        findings.problems.append(
            f"{request.resumed} began with another objective, rule for labels or agent of your own: {said[0]}, "
            f"now {said[1]}. Put the file back as it was, or start a new run with another --run-name."
        )


def _show(request: Request, place: Place) -> None:
    plan, recipe, algorithm = request.plan(), request.recipe, ALGORITHMS[request.args.algo]
    print(f"real_openrlhf {__version__}")
    print(f"  recipe     {recipe.name}: {recipe.about}")
    print(f"  algorithm  {algorithm.name}: {algorithm.about}")
    print(f"  where      {place.about}\n")
    if request.args.dry_run:
        print(f"  threads    {place.threads(plan)}\n")
        print(" ".join(place.command([*TRAINER])))
        print("\n".join(f"  {line}" for line in flag_lines(plan.flags)) + "\n")
        print("\n".join(processes.table(plan, place)) + "\n")
    if plan.changes:
        print("changed by you:")
        for flag, before, after in plan.changes:
            print(f"  {flag}: {in_words(flag, before)} -> {in_words(flag, after)}")
        print()


def _train(request: Request, place: Place, session: Path | None = None) -> int:
    args = request.args
    path = (request.resumed or run_folder.create(args.runs_dir, request.stem, args.run_name)).resolve()
    plan = request.plan(path)
    job = f"{path.name}-{time.time_ns()}"
    with run_folder.only_one(path) as lock:
        record = {
            "name": path.name,
            "algo": args.algo,
            "recipe": request.recipe.name,
            "seed": plan.number("--train.seed"),
            "status": "running",
            "reason": None,
            "started": run_folder.now(),
            "finished": None,
            "command": typed(),
            "host": platform.node(),
            "job": job if place.job_address else None,
            "flags": recorded_flags(plan),
            **provenance.provenance(run_inputs.local_files(plan.flags), run_inputs.objective_files(plan.flags)),
        }
        if request.resumed:
            before = run_folder.read(path)
            record["started"] = before.get("started", record["started"])
            if earlier := provenance.earlier_code(before, record):
                record["earlier_code"] = earlier
        run_folder.write(path, record)
        (path / FINISHED).unlink(missing_ok=True)
        print(f"run folder: {path}\n", flush=True)
        code = 1
        reason: str | None = "the launcher failed"
        try:
            progress = Progress(path, plan.number("--train.max_steps") or None, path / "train.log")
            watch = Watch(path, float(plan.text(LIMIT)))
            environment = place.environment(plan)
            if place.address is None and "TORCH_EXTENSIONS_DIR" in environment:
                drop_stale_locks(Path(environment["TORCH_EXTENSIONS_DIR"]).resolve())
            if session:
                code, reason = supervise(shared_ray.command(session, plan.argv()), environment, lock, progress, watch)
            else:
                with forked_workers.started(environment) as (python, environment):
                    command = place.command([*TRAINER, *plan.argv()], job, python)
                    code, reason = supervise(command, environment, lock, progress, watch)
        finally:
            if reason and reason.startswith(("interrupted", "stalled")):
                place.stop(job)
            if code and shutil.disk_usage(path).free < FULL_BYTES:
                reason = f"the disk of {path} is full: free some space, or move the run to another --runs-dir"
            ending = {"status": "failed" if code else "finished", "reason": reason, "finished": run_folder.now()}
            run_folder.write(path, record | ending)
    print(f"\n{ending['status']}{f' ({reason})' if reason else ''}: {path}")
    if not code:
        print(f"\n{final_summary(path)}")
    else:
        print(f"its output: {path / 'train.log'}")
        print("continue it: the same command with --resume")
    return code
