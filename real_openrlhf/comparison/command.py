"""`real-openrlhf compare`: methods x seeds of one recipe, their evaluation, and the report on all of them.

A run is `real-openrlhf train` in OUT/runs/NAME. A finished run is not run again, and one that another process has
locked is left to it. So the same command continues what was killed, and in several shells it shares the runs; a shell
ends when no run is free.
"""

import argparse
import html
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from real_openrlhf.base import ownership
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.files import write_json
from real_openrlhf.base.parsing import PassThrough, path_of, positive, whole
from real_openrlhf.base.run_files import EVALUATION, MODEL, RECORD
from real_openrlhf.base.terminal import exit_code
from real_openrlhf.comparison.entries import Entry
from real_openrlhf.comparison.runs import ASKED, Runs, eval_args
from real_openrlhf.evaluation import command as eval_command
from real_openrlhf.forecast.duration import Bill, in_all
from real_openrlhf.recipes.recipes import RECIPES
from real_openrlhf.training import command as train_command
from real_openrlhf.training.checks import Findings, run_checks
from real_openrlhf.training.launch_target import LaunchTarget
from real_openrlhf.training.progress import end_unwatched
from real_openrlhf.training.start import Start


class WithGrid(PassThrough):
    """Takes the flag of a grid with its dashes too, by which argparse would end the option."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = [*(args or ())]
        after_grid = zip(words, ["", *words], strict=False)
        return super().parse_known_args(
            [w.removeprefix("--") if b == "--grid" else w for w, b in after_grid], namespace
        )


PARSER = WithGrid
DEFAULT_ALGOS = ("real", "real_fixed_weights", "grpo", "dapo", "gspo")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [--recipe NAME] [--algos NAME ...] [OpenRLHF flags]"
    methods = "algorithms or FILE.py:NAME, with flags of their own in quotes: 'real --algo.real.tau 0.1'"
    grid = "run every algorithm at each value: --grid actor.adam.lr 1e-4 1e-3"
    benchmarks = "evaluate each trained model on these, as `eval --benchmarks`"
    add, default = parser.add_argument, " (default: %(default)s)"
    add("--recipe", choices=RECIPES, metavar="NAME", help="as of `train` (default: that of --config, or cpu)")
    add(
        "--algos",
        nargs="+",
        default=DEFAULT_ALGOS,
        metavar="NAME",
        help=f"{methods} (default: {' '.join(DEFAULT_ALGOS)})",
    )
    add("--seeds", type=positive, default=3, metavar="N", help="seeds of each algorithm" + default)
    add("--first-seed", type=whole, default=1, metavar="N", help="the first seed" + default)
    add("--grid", nargs="+", action="append", default=[], metavar=("FLAG", "VALUE"), help=grid)
    add("--steps", type=positive, metavar="N", help="rollout steps (default: the recipe's)")
    add("--benchmarks", default="none", metavar="NAMES", help=benchmarks + default)
    add("--eval-flags", default="", metavar="WORDS", help="other words of `eval`, in quotes: '--k 4'")
    add("--out", type=path_of, default=Path("comparison"), metavar="DIR", help="runs and report" + default)
    add("--dry-run", action="store_true", help="list and check all runs, start nothing")
    add("--rehearse", action="store_true", help="of each method: shrink a run to two CPU cores and try all of it")


def run(args: argparse.Namespace) -> int:
    runs = Runs.from_args(args)
    ownership.refuse_foreign("--out", [runs.out], runs.out.is_dir())
    if not args.dry_run or (runs.out / "report").exists():
        from real_openrlhf.report import page  # matplotlib takes a second

        page.refuse_foreign(runs.out / "report")
    runs.refuse_other_inputs(runs.entries)
    todo = [entry for entry in runs.entries if not runs.is_done(entry)]
    notes = check(runs, todo, args.dry_run)
    print(f"{len(runs.entries)} runs, {len(runs.entries) - len(todo)} finished: {runs.folder}")
    if args.dry_run:
        print("".join(f"note: {note}\n" for note in notes), end="")
        print("\n".join(f"  {entry.name}  {shlex.join(['--algo', entry.algo, *entry.flags])}" for entry in todo))
        print(f"Flags of all runs OK. Benchmarks after training: {args.benchmarks} {args.eval_flags}".rstrip())
        return 0
    if requests := [runs.request(entry) for entry in todo]:
        target = LaunchTarget.for_recipe(requests[0].recipe)  # GPUs for this shell's runs and their evaluations
        os.environ |= target.take_gpus(max(request.run.layout.gpus for request in requests))
    code = work(runs, todo)
    report(runs.out)
    if missing := [entry.name for entry in todo if not runs.is_done(entry)]:
        print(f"missing: {', '.join(missing)}. Run the same command again", file=sys.stderr)
    return code


def check(runs: Runs, todo: Sequence[Entry], dry_run: bool) -> list[str]:
    """Check the first seed of each method. Raise all problems, each once with the first run that has it; or return
    the notes, and what all runs cost."""
    problems: dict[str, str] = {}
    notes: dict[str, str] = {}
    bills: list[Bill] = []
    methods = Counter((entry.algo, entry.flags) for entry in todo)
    for method, entry in reversed({(entry.algo, entry.flags): entry for entry in reversed(todo)}.items()):
        found = Findings()
        try:
            request = runs.request(entry, *["--dry-run"] * dry_run)
            found = run_checks.findings(Start.of(request))
            if not found.problems and runs.evaluation and request.run.args.ds.lora.rank:
                found.problems = ["`eval` cannot load the adapter that a LoRA run saves. Give --benchmarks none."]
        except UserError as error:
            found.problems = error.problems
        for text in (*found.problems, *found.notes):
            (notes if text in found.notes else problems).setdefault(text, entry.name)
        bills += [bill for note in found.notes if (bill := getattr(note, "bill", None))] * methods[method]
    if problems:
        raise UserError(*(f"{name}: {problem}" for problem, name in problems.items()))
    return [
        *(f"{name}: {note}".replace("--runs-dir", "--out") for note, name in notes.items()),
        *([in_all(bills)] if bills else []),
    ]


def work(runs: Runs, todo: Sequence[Entry]) -> int:
    """Train and evaluate what no other process has, each run once; the exit code of the last failure."""
    before, last = {entry: runs.written(entry) for entry in todo}, 0
    for number, entry in enumerate(todo, 1):
        with runs.taken(entry) as ours:
            runs.refuse_other_inputs(todo)
            if not ours or runs.is_done(entry) or runs.written(entry) != before[entry]:
                continue  # another process trains it, or has ended it since this one began
            print(f"\n--- {entry.name}, {number} of {len(todo)} runs", flush=True)
            code = train_and_evaluate(runs, entry)
        if code in train_command.SIGNALS:
            return code
        last = code or last
    return last


def train_and_evaluate(runs: Runs, entry: Entry) -> int:
    path, code = runs.path(entry), 0
    if (path / RECORD).exists() and (unseen := end_unwatched(path)):
        print(unseen)
    if not runs.is_finished(entry):
        code = exit_code("train", partial(train_command.run, train_command.parse(runs.words(entry))))
    if not code and runs.evaluation:
        words = ["--model", str(path / MODEL), "--name", path.name, "--out", str(path / EVALUATION)]
        code = exit_code("eval", partial(eval_command.run, eval_args([*runs.evaluation, *words])))
        if not code:
            write_json(path / EVALUATION / ASKED, {"words": [*runs.evaluation]})
    return code


def report(out: Path) -> None:
    from real_openrlhf.report.page import write
    from real_openrlhf.report.read_runs import read_runs

    runs, skipped = read_runs(sorted((out / "runs").glob("*")))
    for path, reason in skipped:
        print(f"skipped {path}: {reason}")
    if runs:
        page = write(runs, skipped, out / "report")
        for table in sorted((out / "report" / "tables").glob("*summary.md")):
            print(f"\n{html.unescape(table.read_text(encoding='utf-8'))}")
        print(f"report: {page}")
