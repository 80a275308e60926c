"""`real-openrlhf train`: a recipe, an algorithm and any OpenRLHF flag become one checked command in a run folder.

The command is OpenRLHF's own (`python -m openrlhf.cli.train_ppo_ray FLAGS`); nothing is hidden behind it.
"""

import argparse
import contextlib
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from real_openrlhf import __version__
from real_openrlhf.algorithm.formulas import hint
from real_openrlhf.base import ownership, signals
from real_openrlhf.base.errors import on_one_line
from real_openrlhf.base.files import FINISHED, write_text
from real_openrlhf.base.parsing import name_list, path_of, share, short_path, whole, wrapped
from real_openrlhf.hooks.engine import plugin
from real_openrlhf.hooks.fixes.process_starts import RAY_ENDED
from real_openrlhf.recipes import openrlhf_parser
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.plan import (
    OBJECTIVE,
    REWARD,
    SET,
    USER,
    Plan,
    Setting,
    is_finished,
    recorded_flags,
    typed,
)
from real_openrlhf.recipes.recipes import RECIPES, TRAINING_ROWS
from real_openrlhf.runs import provenance, run_folder
from real_openrlhf.training import config_file, run_inputs
from real_openrlhf.training.checks import memory_estimate, run_checks
from real_openrlhf.training.checks.findings import Findings
from real_openrlhf.training.launch.place import TRAINER, Place
from real_openrlhf.training.launch.process import Watch, drop_stale_locks, scratch, supervise
from real_openrlhf.training.launch.progress import Progress, end_unwatched, final_summary
from real_openrlhf.training.run_inputs import Request

# Of a run's sixty flags those that a reader looks for first.
MAIN = (
    *(run_inputs.MODEL, run_inputs.TRAINING, run_inputs.VALIDATION, REWARD, "--actor.num_gpus_per_node"),
    *("--rollout.batch_size", "--rollout.n_samples_per_prompt", "--train.batch_size", "--rollout.max_new_tokens"),
    *("--rollout.temperature", "--actor.adam.lr", "--actor.max_norm", "--train.max_steps", "--train.seed"),
    *("--actor.policy_loss_type", OBJECTIVE, SET, "--algo.real.tau", "--algo.kl.init_coef"),
)

PARSER = config_file.WithConfig
FULL_BYTES = 1 << 20
RAY_STARTS = 3  # of one run, before it fails
SIGNALS = [128 + number for number in signals.ENDING]  # exit codes


def method(name: str) -> str:
    """The argument of --algo; the parser refuses other names than its choices."""
    if file := hint(name):
        raise argparse.ArgumentTypeError(f"there is no {name!r}. {file}Built in: {', '.join(ALGORITHMS)}")
    return name


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "%(prog)s [--recipe NAME] [--algo NAME] [any OpenRLHF flag]"
    lines = name_list("recipes", [(recipe.name, recipe.about) for recipe in RECIPES.values()])
    lines += name_list("algorithms", [(one.name, one.about) for one in ALGORITHMS.values()])
    lines += ["OpenRLHF's own flags win over the recipe, and --no-FLAG removes one from it.", "All flags:"]
    parser.epilog = "\n".join([*lines, "  python -m openrlhf.cli.train_ppo_ray --help"])
    parser.add_argument(
        "--config",
        type=path_of,
        metavar="FILE",
        help="a TOML file with these options and OpenRLHF's flags; typed ones win",
    )
    parser.add_argument(
        "--recipe", choices=RECIPES, default="cpu", metavar="NAME", help="see below (default: %(default)s)"
    )
    parser.add_argument(
        "--algo",
        type=method,
        choices=ALGORITHMS,
        default="real",
        metavar="NAME",
        help="see below (default: %(default)s)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print and check the run, estimate memory, start nothing"
    )
    parser.add_argument("--all", action="store_true", help="with --dry-run: all flags with their origins")
    parser.add_argument("--model", help="a folder, a hub id, a GGUF file, or smollm2 (default: the recipe's model)")
    parser.add_argument(
        "--data", metavar="SET", help=f"{', '.join(TRAINING_ROWS)}, or your own JSONL file (default: the recipe's)"
    )
    parser.add_argument(
        "--data-dir", type=path_of, default=Path("data"), help="folder of prepared sets (default: %(default)s)"
    )
    parser.add_argument("--seed", type=whole, metavar="N", help="seed of data order, sampling and initialisation")
    parser.add_argument("--max-steps", type=whole, metavar="N", help="rollout steps; 0: all of the data")
    parser.add_argument("--gpus", type=whole, metavar="N", help="GPUs of each node")
    parser.add_argument(
        "--nodes", type=whole, metavar="N", help="nodes; more than one needs a Ray cluster, named by RAY_ADDRESS"
    )
    parser.add_argument(
        "--fill",
        nargs="?",
        type=share,
        const=memory_estimate.SHARE,
        metavar="SHARE",
        help="micro-batches as large as this share of a GPU's memory takes, by the estimate (without a number: "
        "%(const)s; default: the recipe's)",
    )
    parser.add_argument(
        "--working-dir",
        type=path_of,
        help="folder for `ray job submit`, not read on one machine; made by `real-openrlhf patch export`",
    )
    parser.add_argument(
        "--runs-dir", type=path_of, default=Path("runs"), help="folder of run folders (default: %(default)s)"
    )
    parser.add_argument("--run-name", help="name of the run folder (default: recipe, algorithm, seed and time)")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the newest unfinished run of this training, or the run of --run-name, or start one",
    )


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line, for callers in Python."""
    parser = PARSER(prog="real-openrlhf train")
    configure(parser)
    return parser.parse_args(words)


def request_of(words: Sequence[str]) -> Request:
    return Request.of(parse(words))


def run(args: argparse.Namespace) -> int:
    request = Request.of(args)
    place = Place.of(request.recipe, args.working_dir)
    if request.resumed and not args.dry_run and (unseen := end_unwatched(request.resumed)):
        print(f"{unseen}\n")
    show(request, place)
    findings = run_checks.found(request, place)
    if args.dry_run:
        print("\n".join(page(findings, args.all)))
    if args.all and not findings.problems:
        print("variables that are set for its processes:")
        for name, value in place.variables(request.plan()).items():
            print(f"  {name}={value if len(value) < 60 else f'{value[:50]}...'}")
    if not findings.problems and not args.dry_run and request.missing():
        request.make_missing()
        findings.add(run_checks.data(request))
    for note in findings.notes:
        print(wrapped(note, "note: "))
    if findings.problems:
        print(f"{len(findings.problems)} wrong:", file=sys.stderr)
        for problem in findings.problems:
            print(f"  - {on_one_line(problem)}", file=sys.stderr)
        return 2
    if args.dry_run:
        print(verdict(findings))
        return 0
    if request.resumed and is_finished(request.resumed, request.plan()):
        print(f"{request.resumed} is finished: there is nothing to continue\n\n{final_summary(request.resumed)}")
        return 0
    return _train(request, place)


def _train(request: Request, place: Place) -> int:
    args, inputs = request.args, request.plan()
    origin = run_inputs.provenance_of(inputs, place.environment(inputs))
    with contextlib.ExitStack() as stack:
        with signals.held():  # a folder without a record would be nobody's
            path = (request.resumed or run_folder.create(args.runs_dir, request.stem, args.run_name)).resolve()
            lock = stack.enter_context(run_folder.only_one(path))
            if not request.resumed:
                run_folder.refuse_name(args.runs_dir, args.run_name)  # another command may have been there before
            plan = request.plan(path)
            job = f"{path.name}-{time.time_ns()}"
            record = _record(request, plan, path, job if place.job_address else None) | origin
            if request.resumed:
                before = run_folder.read(path)
                record["started"] = before.get("started", record["started"])
                record |= provenance.earlier(before, record)
            run_folder.write(path, record)
            if not request.resumed:
                again = config_file.text(request.recipe.name, args.algo, request.user, request.removed)
                write_text(path / config_file.NAME, [again])
        (path / FINISHED).unlink(missing_ok=True)
        print(f"run folder: {path}\n", flush=True)
        code = 1
        reason: str | None = "the launcher failed"
        try:
            for folder, flag in run_checks.outside(request, path):
                ownership.claim(folder, flag, ownership.owner_name(path))
            environment = place.environment(plan) | request.secrets
            code, reason = _supervised(path, plan, place, environment, job, lock)
        except KeyboardInterrupt as ended:
            code, reason = signals.code_and_words(ended)
        finally:
            with signals.held():
                if reason and reason.startswith(("interrupted", "stalled")):
                    place.stop(job)
                if reason and shutil.disk_usage(path).free < FULL_BYTES:
                    reason = f"the disk of {path} is full: free some space, or move the run to another --runs-dir"
                status = "failed" if reason else "finished"
                steps = plan.args.train.max_steps, plan.args.logger.logging_steps
                reason = reason or run_folder.early_end(path, *steps)
                if record["starting_weights"] is None:  # of a model of the hub, which the run has fetched
                    record["starting_weights"] = run_inputs.starting_weights(plan.text(run_inputs.MODEL))
                run_folder.write(path, record | {"status": status, "reason": reason, "finished": run_folder.now()})
    print(f"\n{status}{f' ({reason})' if reason else ''}: {path}")
    if status == "finished":
        print(f"\n{final_summary(path)}")
    else:
        print(f"its output: {path / 'train.log'}")
        again = "the same command" if args.resume else "the same command with --resume"
        other = "" if args.run_name else f"; to train on with other flags add --run-name {path.name}"
        print(f"continue it: {again}{other}")
    return code


def _record(request: Request, plan: Plan, path: Path, job: str | None) -> dict:
    return {
        "name": path.name,
        "algo": request.args.algo,
        "recipe": request.recipe.name,
        "seed": plan.args.train.seed,
        "status": "running",
        "reason": None,
        "started": run_folder.now(),
        "finished": None,
        "command": typed(),
        "host": platform.node(),
        "job": job,
        "flags": recorded_flags(plan),
    }


def _supervised(
    path: Path, plan: Plan, place: Place, environment: dict, job: str, lock: int
) -> tuple[int, str | None]:
    """Run the training to its end: (exit code, why it failed)."""
    progress = Progress(path, plan.args.train.max_steps or None, path / "train.log")
    watch = Watch(path, plan.args.train.hung_minutes)
    if place.address is None and "TORCH_EXTENSIONS_DIR" in environment:
        drop_stale_locks(Path(environment["TORCH_EXTENSIONS_DIR"]).resolve())
    if place.address:
        return supervise(place.command([*TRAINER, *plan.argv()], job), environment, lock, progress, watch)
    for left in reversed(range(RAY_STARTS)):
        with scratch(environment) as own:
            command = [sys.executable, *TRAINER, *plan.argv()]
            code, reason = supervise(command, own.environment, lock, progress, watch)
            again = code == RAY_ENDED and left > 0
            own.keep = bool(reason) and code not in SIGNALS and not again
        if not again:
            break
        print(f"{reason}: starting it again", flush=True)
    if code == RAY_ENDED:
        reason = f"{reason}, {RAY_STARTS} times. Type the same command with --resume when the machine is quieter"
    if own.keep and own.folder:
        print(f"Ray's own logs: {own.folder}")
    return code, reason


# What is printed before a run, and the page of a dry run: 80 columns and 60 lines, or everything with --all


def show(request: Request, place: Place) -> None:
    plan, recipe, algorithm, args = request.plan(), request.recipe, ALGORITHMS[request.args.algo], request.args
    print(f"real_openrlhf {__version__}")
    for name, about in (
        ("recipe", f"{recipe.name}: {recipe.about}"),
        ("algorithm", f"{algorithm.name}: {algorithm.about}"),
        ("where", place.about),
        ("vLLM", plugin.model_runner()),
    ):
        print(wrapped(about, f"  {name:9}  "))
    print()
    if args.dry_run:
        print("\n".join([*_all_of(plan, place)] if args.all else [*_main(plan)]) + "\n")
    if plan.changes:
        print("changed by you:")
        for flag, before, after in plan.changes:
            print(wrapped(f"{flag}: {_in_words(flag, before)} -> {_in_words(flag, after)}", "  "))
        print()


def _main(plan: Plan) -> Iterator[str]:
    width = max(len(flag) for flag in MAIN)
    for flag in MAIN:
        if flag in plan.flags:
            setting = plan.flags[flag]
            value = ",".join(map(short_path, setting.text.split(","))) or "on"
            yield wrapped(f"{value}  ({setting.origin})", f"  {flag:{width}}  ")
    yield wrapped(f"all {len(plan.flags)} flags with their origins, the processes and their variables: --all")


def _all_of(plan: Plan, place: Place) -> Iterator[str]:
    yield " ".join(place.command([*TRAINER]))
    words = {flag: f"{flag} {setting.text}".strip() for flag, setting in plan.flags.items()}
    left = min(max(map(len, words.values())), 46)
    middle = max(len(setting.origin) for setting in plan.flags.values())
    for flag, setting in plan.flags.items():
        yield wrapped(setting.note, f"  {words[flag]:{left}}  {setting.origin:{middle}}  ").rstrip()


def _in_words(flag: str, setting: Setting | None) -> str:
    if setting is None:  # a switch is off, a value is that of OpenRLHF's parser
        default = openrlhf_parser.defaults().get(flag)
        return "not given" if default is None else f"{default} (OpenRLHF's default)" if default else "off"
    value = setting.text or "on"
    return value if setting.origin == USER else f"{value} ({setting.origin})"


def page(findings: Findings, everything: bool) -> Iterator[str]:
    """The lines of a dry run's findings; without `everything`, sums without their parts."""
    for line in findings.lines:
        if everything or not line.startswith("  "):
            yield wrapped(line.strip(), "    " if line.startswith("  ") else "")


def verdict(findings: Findings) -> str:
    """The last line of a dry run in which nothing is wrong."""
    count = len(findings.notes)
    notes = f", {count} note{'s' * (count != 1)}" if count else ""
    here = "; not for this machine" if findings.elsewhere else ""
    return f"dry run: nothing is wrong{notes}{here}; nothing was started"
