"""`real-openrlhf train`: a recipe, an algorithm and any OpenRLHF flag become one checked command in a run folder.

The command is OpenRLHF's own (`python -m openrlhf.cli.train_ppo_ray FLAGS`); nothing is hidden behind it.
"""

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from real_openrlhf import __version__
from real_openrlhf.base.parsing import command_line, path_of, shortest
from real_openrlhf.base.run_files import LOG, ROLLOUTS
from real_openrlhf.base.signals import ENDING, code_and_words
from real_openrlhf.data.sources import SUFFIXES, TRAINING_SETS
from real_openrlhf.flags import parser as flags_parser
from real_openrlhf.recipes.algorithms import ALGORITHMS
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.recipes.run import KINDS, RECIPE, USER, FlagValue
from real_openrlhf.training.checks import run_checks
from real_openrlhf.training.launch_target import TRAINER
from real_openrlhf.training.progress import Progress, end_unwatched, final_summary
from real_openrlhf.training.record import Training, recorded
from real_openrlhf.training.request import RUNS, Request, WithConfig
from real_openrlhf.training.start import Start
from real_openrlhf.training.trainer_process import Watch, drop_stale_locks, scratch, supervise

PARSER = WithConfig
SCRATCH = ".scratch"  # in a run's folder while it trains: a link to its temporary files
SIGNALS = [128 + number for number in ENDING]  # exit codes


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "%(prog)s [--recipe NAME] [--algo NAME] [any OpenRLHF flag]"
    titles: dict[str, list] = {"recipes": [*RECIPES.values()]}
    for kind in KINDS:
        titles[f"algorithms, {kind}"] = [algorithm for algorithm in ALGORITHMS.values() if algorithm.kind == kind]
    width = max(map(len, (*RECIPES, *ALGORITHMS)))
    lines = []
    for title, choices in titles.items():
        lines.append(f"{title}:")
        for choice in choices:
            line, deep = f"  {choice.name:{width}}  {choice.about}", " " * (width + 4)
            lines.append(textwrap.fill(line, 79, subsequent_indent=deep, break_on_hyphens=False))
    lines.append("Others are files in examples/objectives: --algo FILE.py:NAME.")
    lines += ["Flags that you type override the recipe, and --no-FLAG removes one from it.", "All flags:"]
    parser.epilog = "\n".join([*lines, "  python -m openrlhf.cli.train_ppo_ray --help"])
    add, default = parser.add_argument, " (default: %(default)s)"
    config = "a TOML file with these options and OpenRLHF's flags; what you type overrides it"
    sets = f"{', '.join(TRAINING_SETS)}; your own {', '.join(SUFFIXES)} file; OWNER/NAME on the hub (default: the "
    sets += "recipe's)"
    nodes = "nodes; more than one needs a Ray cluster, named by RAY_ADDRESS"
    name = "name of the run folder (default: recipe, algorithm, seed and time)"
    again = "continue the run of --run-name, or the newest unfinished run with these flags; start one if there is none"
    add("--config", type=path_of, metavar="FILE", help=config)
    add("--recipe", choices=RECIPES, default="cpu", metavar="NAME", help="see below" + default)
    add("--algo", default="real", metavar="NAME", help="see below, or FILE.py:NAME" + default)
    add("--dry-run", action="store_true", help="print all flags with their origins, check the run, start nothing")
    add("--rehearse", action="store_true", help="shrink the run to two CPU cores, try all of it, print what is wrong")
    add("--model", help="a folder or a hub id (default: the recipe's model)")
    add("--data", metavar="SET", help=sets)
    add("--data-dir", type=path_of, default=Path("data"), help="folder of prepared sets" + default)
    add("--seed", metavar="N", help="seed of data order, sampling and initialisation")
    add("--max-steps", metavar="N", help="rollout steps; 0: all of the data")
    add("--gpus", metavar="N", help="GPUs of each node")
    add("--nodes", metavar="N", help=nodes)
    add("--runs-dir", type=path_of, default=RUNS, help="folder of run folders" + default)
    add("--run-name", help=name)
    add("--resume", action="store_true", help=again)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line, for callers in Python: all of the run is in it, also when it is resumed."""
    parser = PARSER(prog="real-openrlhf train")
    parser.by_name = False
    configure(parser)
    return parser.parse_args(words)


def request_of(words: Sequence[str]) -> Request:
    return Request.from_args(parse(words))


def run(args: argparse.Namespace) -> int:
    start = Start.of(Request.from_args(args))
    findings = run_checks.findings(start)
    findings.refuse()
    begun = start.request.resumed
    if begun and not args.dry_run and (unseen := end_unwatched(begun)):
        print(f"{unseen}\n")
    show(start, every_flag=args.dry_run)
    if not args.dry_run and start.request.missing():
        start = Start.of(start.request.made())
        findings.add(run_checks.data(start))
        findings.refuse()
    for note in findings.notes:
        print(f"note: {note}")
    if begun and start.is_finished:
        print(f"{begun} is finished: there is nothing to continue\n\n{final_summary(begun)}")
        return 0
    if args.dry_run:
        print(findings.conclusion)
        return 0
    return _train(start)


def _train(start: Start) -> int:
    gpus = start.target.take_gpus(start.run.layout.gpus)
    training = trained(replace(start, environment=start.environment | gpus))
    _show_ending(training)
    return training.code


def trained(start: Start) -> Training:
    with recorded(start) as training:
        print(f"run folder: {training.path}\n", flush=True)
        try:
            training.code, training.reason = _supervised(training)
        except KeyboardInterrupt as ended:
            training.code, training.reason = code_and_words(ended)
    return training


def _supervised(training: Training) -> tuple[int, str | None]:
    """Run the training to its end: (exit code, why it failed)."""
    path, run, environment = training.path, training.run, training.start.environment
    progress = Progress(path, run.args.train.max_steps or None, path / LOG)
    watch = Watch(path, run.args.train.watchdog_minutes)
    command = [sys.executable, *TRAINER, *run.argv()]
    if training.start.target.address:
        return supervise(command, environment, training.lock, progress, watch)
    if "TORCH_EXTENSIONS_DIR" in environment:
        drop_stale_locks(Path(environment["TORCH_EXTENSIONS_DIR"]).resolve())
    with scratch(environment, path / SCRATCH) as own:
        code, reason = supervise(command, own.environment, training.lock, progress, watch)
        own.keep = bool(reason) and code not in SIGNALS
    if own.keep:
        print(f"Ray's own logs: {own.folder}")
    return code, reason


def _show_ending(training: Training) -> None:
    path, args = training.path, training.start.request.args
    status, reason = training.record["status"], training.record["reason"]
    print(f"\n{status}{f' ({reason})' if reason else ''}: {path}")
    if status == "finished":
        print(f"\n{final_summary(path)}")
        if (path / ROLLOUTS).exists():
            print(f"read its responses: {command_line('show', shortest(path))}")
        return
    print(f"its output: {path / LOG}")
    again = "the same command" if args.resume else "the same command with --resume"
    other = "" if args.run_name else f"; to train on with other flags add --run-name {path.name}"
    if training.last_step:
        print(f"continue it: {again}{other}")
    else:
        mend = "" if training.code in SIGNALS else "mend the cause, then "
        print(f"no step was trained: {mend}start again with {again if args.run_name else 'the same command'}")


# What is printed before a run


def show(start: Start, every_flag: bool) -> None:
    run, recipe, args = start.run, start.request.recipe, start.request.args
    algorithm = ALGORITHMS[args.algo]
    print(f"real_openrlhf {__version__}")
    print(f"  recipe     {recipe.name}: {recipe.about}")
    loss = run.text("--algo.real.objective")
    beside = ", and a reference model" * run.args.derived.reference
    about = f"with the loss {loss.rpartition('/')[2]}{beside}" if ".py" in loss else algorithm.about
    print(f"  algorithm  {algorithm.name}: {about}")
    print(f"  where      {start.target.about}\n")
    if every_flag:
        print(" ".join([sys.executable, *TRAINER]))
        words = {flag: f"{flag} {setting.text}".strip() for flag, setting in run.flags.items()}
        left = min(max(map(len, words.values())), 46)
        middle = max(len(setting.origin) for setting in run.flags.values())
        for flag, setting in run.flags.items():
            note = "not read by this run" if flag in run.unread else setting.note
            print(f"  {words[flag]:{left}}  {setting.origin:{middle}}  {note}".rstrip())
        runner = {"VLLM_USE_V2_MODEL_RUNNER": "0" if start.target.on_cpu else "1"}
        for name, value in (runner | start.variables).items():
            origin = USER if os.environ.get(name) else RECIPE if start.environment.get(name) else "default"
            print(f"  {f'{name}={value}':{left}}  {origin}")
        print()
    if run.changes:
        print("changed by you:")
        for flag, before, after in run.changes:
            print(f"  {flag}: {_in_words(flag, before)} -> {_in_words(flag, after)}")
        print()


def _in_words(flag: str, setting: FlagValue | None) -> str:
    if setting is None:  # a switch is off, a value is that of OpenRLHF's parser
        default = flags_parser.defaults().get(flag)
        return "not given" if default is None else f"{default} (OpenRLHF's default)" if default else "off"
    value = setting.text or "on"
    return value if setting.origin == USER else f"{value} ({setting.origin})"
