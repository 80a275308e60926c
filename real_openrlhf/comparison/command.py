"""`real-openrlhf compare`: algorithms x seeds of one recipe, their evaluation, and the report on all of them.

A finished run is not run again. Several shells or tasks of SLURM on one folder share the runs (run_list.py).
"""

import argparse
import os
import re
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from real_openrlhf.base import files, ownership
from real_openrlhf.base.errors import UserError, on_one_line
from real_openrlhf.base.parsing import (
    PassThrough,
    did_you_mean,
    flag_name,
    path_of,
    positive,
    share,
    whole,
    words_of,
)
from real_openrlhf.comparison import dry_run
from real_openrlhf.comparison.repeats import without_repeats
from real_openrlhf.comparison.run_list import (
    FINISHED,
    HELD,
    QUEUE,
    SIGNALS,
    WAITING,
    Entry,
    RunList,
    entries,
    state,
    status_lines,
    stepped,
    taken,
)
from real_openrlhf.comparison.trainer import Trainer, eval_args, make_benchmarks
from real_openrlhf.data.benchmarks import chosen
from real_openrlhf.evaluation import grading
from real_openrlhf.evaluation.store import SAMPLES
from real_openrlhf.recipes.plan import PLACES, changed_flags
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.runs import run_folder
from real_openrlhf.training import config_file, run_inputs
from real_openrlhf.training.checks import flag_checks
from real_openrlhf.training.launch.progress import duration, end_unwatched
from real_openrlhf.training.run_inputs import Request
from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.tasks import TINY, default

DEFAULT_ALGOS = ("real", "real_constant", "grpo", "dapo", "gspo")
LOOK_SECONDS = 5.0
UNCLIPPED = ("--actor.max_norm", "100")  # for the tiny models, whose gradient norms differ between methods
# Words that follow a comparison's own and would win over them
INSTEAD = {
    "--algo": "Use --algos",
    "--seed": "Use --first-seed and --seeds",
    "--train.seed": "Use --first-seed and --seeds",
    "--run-name": "Use --out",
    "--runs-dir": "Use --out",
    **dict.fromkeys(sorted(PLACES), "Use --out, below which each run has its folder"),
    "--resume": "The same command again continues it",
    "--dry-run": "Give it outside the quotes of --algos",
}
INSTEAD_OF_EVAL = {
    "--model": "Leave it out",
    "--name": "Leave it out",
    "--out": "Leave it out",
    "--benchmarks": "Use --benchmarks of `compare`",
    "--compare": "Type `real-openrlhf eval --compare` afterwards",
}

# A campaign is a comparison in a TOML file, whose keys are the options of `compare`.
CAMPAIGNS = Path(__file__).with_name("campaigns")
OURS = sorted(path.stem for path in CAMPAIGNS.glob("*.toml"))
KEYS = "about recipe skill algos seeds first-seed grid steps benchmarks eval-flags".split()


def campaign_file(name: str) -> Path:
    path = CAMPAIGNS / f"{name}.toml" if name in OURS else Path(name)
    if path.is_file():
        return path
    near = did_you_mean(name, OURS)
    raise UserError(f"--campaign {name}: no such file, and no campaign of ours. {near}There are: {', '.join(OURS)}")


class WithCampaign(PassThrough):
    """Puts a campaign's words before the typed words, so that typed options win."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        typed = [*(args or ())]
        only = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        only.add_argument("--campaign")
        named, _ = only.parse_known_args(typed)
        try:
            words = config_file.read(campaign_file(named.campaign)) if named.campaign is not None else []
            written = [word.replace("--grid.", "--grid\0") for word in words if not word.startswith("--about=")]
            written = [part for word in written for part in word.split("\0")]
        except UserError as error:
            self.error(str(error))
        return super().parse_known_args([*written, *typed], namespace)


PARSER = WithCampaign


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [--campaign NAME | --recipe NAME] [OpenRLHF flags]"
    parser.add_argument(
        "--campaign",
        metavar="NAME",
        help=f"{', '.join(OURS)}, or a file like these in {CAMPAIGNS.name}/; options beside it win",
    )
    parser.add_argument(
        "--recipe", choices=RECIPES, default="cpu", metavar="NAME", help="as of `train` (default: %(default)s)"
    )
    parser.add_argument(
        "--algos",
        nargs="+",
        default=DEFAULT_ALGOS,
        metavar="NAME",
        help="algorithms, with flags of their own in quotes: 'real --algo.real.tau 0.1' "
        f"(default: {' '.join(DEFAULT_ALGOS)})",
    )
    parser.add_argument(
        "--seeds", type=positive, default=3, metavar="N", help="seeds of each algorithm (default: %(default)s)"
    )
    parser.add_argument(
        "--first-seed", type=whole, default=1, metavar="N", help="the first seed (default: %(default)s)"
    )
    parser.add_argument(
        "--grid",
        nargs="+",
        action="append",
        default=[],
        metavar=("FLAG", "VALUE"),
        help="run every algorithm at each value: --grid actor.adam.lr 1e-4 1e-3; given twice, at each pair of values, "
        "and the report is their map",
    )
    parser.add_argument("--steps", type=positive, metavar="N", help="rollout steps (default: the recipe's)")
    parser.add_argument(
        "--skill",
        type=share,
        metavar="P",
        help="share of right answers in the model's pre-training; lower is harder (default: the task's)",
    )
    parser.add_argument(
        "--benchmarks",
        metavar="NAMES",
        help="evaluate each trained model on these, as `eval --benchmarks`: all, names, JSONL files, or none "
        "(default: all where the recipe trains a whole model on mathematics)",
    )
    parser.add_argument(
        "--eval-flags", default="", metavar="WORDS", help="other words of `eval`, in quotes: '--k 4 --think optional'"
    )
    parser.add_argument(
        "--out",
        type=path_of,
        metavar="DIR",
        help="folder for runs and report (default: the campaign's name, or comparison)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="list and check all runs, estimate their cost, start nothing"
    )
    parser.add_argument("--all", action="store_true", help="with --dry-run: every run")
    parser.add_argument("--status", action="store_true", help="a line for each run: how far it is; starts nothing")


def run(args: argparse.Namespace) -> int:
    if args.all and not args.dry_run:
        raise UserError("--all goes with --dry-run. Add it, or leave --all out")
    runs, repeats = without_repeats(run_list(args))
    if args.status:
        if not runs.out.exists():
            if args.out:
                raise UserError(f"--out {args.out} does not exist: no comparison was started there. Check the path")
            print(f"{runs.out} does not exist: nothing was started there")
        print(*status_lines(runs, runs.entries), sep="\n")
        return 0
    # A model that --skill asks for has the default model's shape and data, so the checks can do without it.
    unmade = args.skill is not None and not _skilled(args).folder().exists()
    checked = replace(runs, common=run_list(args, skilled=False).common) if unmade else runs
    notes = [*_notes(args, runs), *repeats]
    refuse_foreign_results(runs)
    if args.dry_run and unmade:
        return dry_run.show(
            checked, [*notes, f"a model of skill {args.skill:g} is pre-trained before the first run"], args.all
        )
    if unmade:
        if wrong := dry_run.problems(checked, checked.entries)[0]:
            raise UserError(*wrong)
        tiny_model.prepare(_skilled(args))
    for entry in runs.entries:
        path = runs.path(entry)
        if state(runs, entry).kind != HELD and (unseen := end_unwatched(path)):
            print(unseen)
        if (path / "run.json").exists():
            refuse_other_inputs(path, runs.request(entry))
    if args.dry_run:
        return dry_run.show(runs, notes, args.all)
    todo = [entry for entry in runs.entries if state(runs, entry).kind != FINISHED]
    done = len(runs.entries) - len(todo)
    for note in [*notes, *dry_run.cost_of(runs, todo)[1]]:
        print(f"note: {note}")
    steps = runs.request(runs.entries[0]).flags.text("--train.max_steps")
    print(f"{len(runs.entries)} runs of {steps} steps, {done} already finished: {runs.folder}")
    if todo and (wrong := dry_run.problems(runs, todo)[0]):
        raise UserError(*wrong)
    runs.out.mkdir(parents=True, exist_ok=True)
    if args.campaign and not (runs.out / "campaign.toml").exists():
        shutil.copyfile(campaign_file(args.campaign), runs.out / "campaign.toml")
    code = 0
    if todo:
        if runs.evaluation is not None:
            make_benchmarks(runs.evaluation)
        code = _work(runs, todo)
    left = [entry for entry in todo if state(runs, entry).kind != FINISHED]
    _report(runs, args)
    for line in status_lines(runs, left) if left else ():
        print(on_one_line(line), file=sys.stderr)
    if code:
        print("run the same command again for the missing runs", file=sys.stderr)
    return code


def _notes(args: argparse.Namespace, runs: RunList) -> Iterator[str]:
    """What this comparison sets by itself, and options that nothing reads."""
    if tuple(UNCLIPPED) == runs.common[: len(UNCLIPPED)] and UNCLIPPED[0] not in args.openrlhf:
        yield (
            f"gradients are not clipped ({' '.join(UNCLIPPED)}): at this size a norm of 1 would shorten nearly all "
            f"updates of REAL and few of GRPO. {UNCLIPPED[0]} 1 clips as `train` does"
        )
    if args.eval_flags and runs.evaluation is None:
        yield "--eval-flags is not read, because nothing is evaluated: give --benchmarks too"
    if args.skill is not None and _skilled(args) == default(RECIPES[args.recipe].model):
        yield f"--skill {args.skill:g} is what the recipe's model has anyway: these runs are those without it"


def refuse_foreign_results(runs: RunList) -> None:
    from real_openrlhf.report.page import refuse_foreign  # matplotlib takes a second

    ownership.refuse_foreign("--out", [runs.out], runs.out.is_dir())
    refuse_foreign(runs.out / "report")


def _grid(args: argparse.Namespace) -> dict[str, list[str]]:
    """{flag: [flag, *values]}; the last --grid of a flag wins, so a typed --grid wins over the campaign's."""
    return {flag_name(flag): [flag, *values] for flag, *values in args.grid}


def _refuse(words: Iterable[str], instead: Mapping[str, str], why: str) -> None:
    for flag in (re.sub("^--no-", "--", word.partition("=")[0]) for word in words):
        if flag in instead:
            raise UserError(f"{flag} {why}. {instead[flag]}")


def run_list(args: argparse.Namespace, skilled: bool = True) -> RunList:
    # The checks of a run see the first seed of each setting only
    if wrong := flag_checks.out_of_bounds("--train.seed", [args.first_seed + args.seeds - 1]):
        raise UserError(f"{wrong} Give a smaller --first-seed or --seeds.")
    every = entries(args.algos, args.seeds, args.first_seed, [*_grid(args).values()])
    typed = [*args.openrlhf, *(word for entry in every for word in entry.flags)]
    _refuse(typed, INSTEAD, "is of `train`: a comparison sets it for each run")
    recipe = RECIPES[args.recipe]
    common = ["--recipe", recipe.name]
    common = [*UNCLIPPED, *common] if recipe.model in TINY else common
    if args.skill is not None and skilled:
        folder = _skilled(args).folder()
        common += ["--model", str(folder / "model"), "--data", str(folder / "train.jsonl")]
        common += [run_inputs.VALIDATION, str(folder / "eval.jsonl")]
    common += ["--max-steps", str(args.steps)] if args.steps else []
    out = args.out or Path(Path(args.campaign).name.removesuffix(".toml") if args.campaign else "comparison")
    mathematics = recipe.eval_data == "aime24" and "--ds.lora.rank" not in recipe.settings
    benchmarks = ("all" if mathematics else "none") if args.benchmarks is None else args.benchmarks
    data_dir = Path(dict(zip(args.openrlhf, args.openrlhf[1:], strict=False)).get("--data-dir", "data"))
    if benchmarks == "none":
        return RunList(every, (*common, *args.openrlhf), out, None)
    flags = words_of("--eval-flags", args.eval_flags)
    _refuse(flags, INSTEAD_OF_EVAL, "in --eval-flags: a comparison evaluates each run's model in the run's folder")
    named, files = chosen(benchmarks)
    if not (named or files):
        raise UserError(f"--benchmarks {benchmarks!r} names no benchmark. Give names, all, or none")
    if missing := [name for name in files if not Path(name).is_file()]:
        raise UserError(f"--benchmarks {missing[0]}: there is no such file")
    evaluation = ["--benchmarks", ",".join([*named, *map(os.path.abspath, files)]), *flags]
    grading.refuse(eval_args(evaluation))
    if named and not eval_args(evaluation).data_dir:
        evaluation[2:2] = ["--data-dir", os.path.abspath(data_dir / "benchmarks")]
    return RunList(every, (*common, *args.openrlhf), out, tuple(evaluation))


def _skilled(args: argparse.Namespace) -> tiny_model.TinyTask:
    task = RECIPES[args.recipe].model
    if task not in TINY:
        raise UserError(f"--skill is for models that are pre-trained here, as for {', '.join(TINY)}. Leave it out.")
    return TINY[task](skill=args.skill)  # type: ignore[call-arg]


def refuse_other_inputs(path: Path, request: Request) -> None:
    """A finished run counts for this comparison only if it ran with its flags and with its files."""
    record, flags = run_folder.read(path), request.flags_in(path)
    if other := changed_flags(record, flags):
        differences = "; ".join(f"{flag} {old}, not {new}" for flag, (old, new) in other.items())
        raise UserError(f"{path} was made with {differences}. Choose another --out.")
    for changed in run_inputs.changed_files(record, flags).values():
        raise UserError(f"{path} was made with {changed}. Put the file back as it was, or choose another --out.")


def _work(runs: RunList, todo: Sequence[Entry]) -> int:
    """Train and evaluate all runs that no other process holds. Returns the exit code of the last run that failed."""
    began, last, waiting = time.time(), 0, False
    seconds: list[float] = []
    sound = False  # whether a run has made a step here
    failed: set[str] = set()  # methods that failed
    trainer = Trainer(runs)
    while True:
        now = {entry: state(runs, entry) for entry in todo}
        held = [entry for entry, one in now.items() if one.kind == HELD]
        free = [entry for entry, one in now.items() if one.kind == WAITING or 0 < one.ended < began]
        if not free and (not held or "SLURM_JOB_ID" in os.environ):
            return last  # a waiting node costs as much as a working node
        if not free:
            if not waiting:
                print(f"\nother processes train the rest: {', '.join(entry.name for entry in held)}", flush=True)
            waiting = True
            time.sleep(LOOK_SECONDS)
            continue
        entry = min(free, key=lambda one: now[one].ended > 0)  # what failed before comes last
        with taken(runs.out / QUEUE, entry.name, now[entry].attempt + 1) as ended:
            if ended is None:
                continue
            left = f", about {duration(statistics.median(seconds) * len(free))} left" if seconds else ""
            print(f"\n--- {entry.name}, {len(free)} of {len(runs.entries)} runs to go{left}", flush=True)
            started, waiting = time.time(), False
            code, reason = trainer.one(entry)
            seconds.append(time.time() - started)
            ended(code, reason)
        last = code or last
        if code in SIGNALS:
            return 1 if len(seconds) == 1 and _limit_is_too_short(runs.path(entry), started) else code
        sound = sound or runs.trained(entry) or stepped(runs.path(entry), since=started)
        failed |= {entry.algo} if code else set()
        if not sound and len(failed) > 1 and len(free) > 1:
            print(
                f"{' and '.join(sorted(failed))} failed before a first step, and no run has made one here: this "
                "machine may be at fault, and takes no more runs",
                file=sys.stderr,
            )
            return last


def _limit_is_too_short(path: Path, started: float) -> bool:
    """Whether a second task of SLURM reached its limit without a checkpoint or a sample: a third would get no further.

    `slurm_compare.sbatch` writes to the file of this variable when SLURM warns of the limit.
    """
    warned = Path(os.environ.get("REAL_TIME_LIMIT", ""))
    if os.environ.get("SLURM_RESTART_COUNT", "0") == "0" or not (warned.is_file() and warned.stat().st_size):
        return False
    kept = [*path.glob("checkpoints/_actor/*/manifest.json"), path / "eval" / SAMPLES]
    if any(file.exists() and file.stat().st_mtime > started - 1 for file in kept):
        return False
    print(
        f"{path.name} has no checkpoint since this task began: not requeued. Give a longer time limit, or a smaller "
        "--ckpt.save_steps",
        file=sys.stderr,
    )
    return True


def _report(runs: RunList, args: argparse.Namespace) -> None:
    from real_openrlhf.report.page import write
    from real_openrlhf.report.read_runs import read_runs

    with open(runs.out / ".report.lock", "a") as lock:
        files.wait_for_lock(lock)
        found, skipped = read_runs(sorted(runs.folder.glob("*")))  # also runs of earlier comparisons in this folder
        for path, reason in skipped:
            print(f"skipped {path}: {reason}")
        if not found:
            return
        print(f"report: {write(found, skipped, runs.out / 'report')}")
