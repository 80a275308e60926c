"""`train --rehearse` and `compare --rehearse`: try rows and reward, shrink the run, train it, kill it, resume it."""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from real_openrlhf.base.errors import UserError, last_line
from real_openrlhf.base.files import parsed, write_text
from real_openrlhf.base.parsing import flag_name
from real_openrlhf.base.run_files import CHECKPOINTS, LOCK, METRICS, REHEARSAL
from real_openrlhf.base.run_files import MODEL as WEIGHTS
from real_openrlhf.base.secrets import REWARD
from real_openrlhf.base.signals import Ended
from real_openrlhf.comparison.runs import Runs
from real_openrlhf.flags import refusals
from real_openrlhf.recipes import shrink
from real_openrlhf.recipes.run import AGENT, MODEL, OBJECTIVE, TRAINING, USER, VALIDATION
from real_openrlhf.recipes.shrink import FOLLOWS, SAVED, STEPS, Change
from real_openrlhf.rehearsal.page import Page, table
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command
from real_openrlhf.training.checks import Findings, data_check, run_checks
from real_openrlhf.training.launch_target import LaunchTarget
from real_openrlhf.training.record import Training
from real_openrlhf.training.request import Request
from real_openrlhf.training.start import Start
from real_openrlhf.training.trainer_process import STALLED

RUN = "run"  # the small run's folder, in the rehearsal's
SPOILED, CRASHED = 3, 1  # exit codes; a command that cannot be read has 2
SECONDS = 1800.0  # of the trial, at most
FEW = 0.05  # a share of ungraded responses that is no finding
PLANTED = "from real_openrlhf.rehearsal.planted import planted, planted_agent\n\n{}\n"
STORY = ("rollout/pass_rate", "policy_loss", "actor_grad_norm", "sampling/logprob_diff_mean", "response_length")


def run(args: argparse.Namespace) -> int:
    if args.dry_run:
        raise UserError("--dry-run starts nothing, and --rehearse trains. Give one of them.")
    os.environ.pop("RAY_ADDRESS", None)  # of the cluster that will train the run
    if lacking := Start.of(command.request_of([])).lacking:  # for a run without GPUs
        raise UserError(*lacking)
    return max(map(rehearse, [args] if args.command == "train" else of_methods(args)))


def of_methods(args: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The first run of each method."""
    runs, grid = Runs.from_args(args), [flag_name(flag) for flag, *_ in args.grid]
    first = {(entry.algo, entry.without(grid).flags): entry for entry in reversed(runs.entries)}
    for entry in reversed(first.values()):
        words = ["--algo", entry.algo, "--seed", str(entry.seed), *runs.common, *entry.flags]
        yield command.parse([*words, "--runs-dir", str(runs.out)])


def asked(args: argparse.Namespace) -> Start:
    """The run as it is typed: checked as a dry run is, for another machine, whatever has begun."""
    args.rehearse, args.dry_run, args.resume, args.run_name = True, True, False, None
    request = Request.from_args(args)
    if request.run.problems:
        raise UserError(*request.run.problems)
    if [*refusals.gpu_problems(request.run.args)]:  # a command for GPUs with the recipe for none
        request = replace(request, recipe=replace(request.recipe, on_cpu=False))
    for path, make in request.missing().items():
        if str(path) != request.run.text(VALIDATION) and not path.exists():  # that one is not needed
            make()
    return Start.of(replace(request))  # its flags follow from these files


def rehearse(args: argparse.Namespace) -> int:
    start = asked(args)
    if not (start.run.text(REWARD) or start.run.text(AGENT)):
        raise UserError("--rehearse tries a reward function, a server or an agent, and this run has a reward model.")
    command.show(start, every_flag=False)
    folder = run_folder.create(args.runs_dir, f"{REHEARSAL}{start.request.stem}", None).resolve()
    print(f"rehearsal folder: {folder}", flush=True)
    rehearsal = Rehearsal(start, folder)
    try:
        code = rehearsal.run()
        rehearsal.write()
        return code
    except Exception as error:
        rehearsal.crash = f"{type(error).__name__}: {last_line(error)}"
        rehearsal.write()
        raise
    finally:
        for made in ("model", "bytes", f"{RUN}/{CHECKPOINTS}", f"{RUN}/{WEIGHTS}"):  # random weights
            shutil.rmtree(folder / made, ignore_errors=True)


@dataclass
class Rehearsal(Page):
    changes: list[Change] = field(default_factory=list)

    def run(self) -> int:
        """The exit code. A part ends the rehearsal if the next one would try nothing."""
        parts = {"checks of a dry run": self.check, "model, rows and reward": self.try_parts}
        parts |= {f"{STEPS} steps, a kill, a resume": self.train}
        for name, part in parts.items():
            if not self.stops:
                print(f"\nrehearsal: {name}", flush=True)
                begin = time.monotonic()
                part()
                self.seconds[name] = round(time.monotonic() - begin, 1)
        return CRASHED if self.crash else SPOILED if self.findings else 0

    def check(self) -> None:
        """What a dry run finds."""
        request, run = self.start.request, self.start.run
        few = {*data_check.step_problems(run.args, request.rows)} if request.rows is not None else set()
        for check in run_checks.CHECKS:
            (every := Findings()).add(check(self.start))
            self.dry += [note for note in every.notes if note not in self.start.lacking]
            for problem in every.problems:
                # what does not fit is counted below, with the chat template
                if "does not fit into --data.max_len" not in problem:
                    self.find(problem, stops=problem not in few and check.__name__ in ("data", "_reward"))
        away = {flag: f"{run.text(flag)} is no file here" for flag in (TRAINING, VALIDATION) if not self.files(flag)}
        if TRAINING in away and not self.stops:
            write = "`real-openrlhf data OWNER/NAME --out FILE.jsonl` writes one"
            self.find(f"{TRAINING} {away[TRAINING]}, and a rehearsal reads all rows. {write}", stops=True)
        if VALIDATION in away and VALIDATION in run.flags:
            self.notes.append(f"validation: not rehearsed, {away[VALIDATION]}")

    def files(self, flag: str) -> list[str]:
        """Files of rows, if all are here."""
        names = [name for name in self.start.run.text(flag).split(",") if name]
        return names if all(Path(name).is_file() for name in names) else []

    def try_parts(self) -> None:
        """In a process of its own, in another folder; it ends with all that the reward has started."""
        run, log, told = self.start.run, self.folder / "trial.log", self.folder / "trial.json"
        asked = {flag: self.files(flag) for flag in (TRAINING, VALIDATION)}
        words = [json.dumps([run.argv(), *asked.values(), shrink.drawn(self.value) * STEPS]), str(self.folder)]
        words = [sys.executable, "-m", "real_openrlhf.rehearsal.trial", *words]
        here = LaunchTarget.for_recipe(replace(self.start.request.recipe, on_cpu=True)).environment(run)
        with tempfile.TemporaryDirectory() as elsewhere, log.open("w") as out:
            child = subprocess.Popen(words, env=here, cwd=elsewhere, start_new_session=True, stdout=out, stderr=out)
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(SECONDS)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        self.found = parsed(told.read_bytes()) if told.exists() else {}
        told.unlink(missing_ok=True)  # rehearsal.json has it
        self.notes += self.found.pop("notes", ())
        for finding in self.found.pop("findings", ()):
            self.find(**finding)
        if not self.found.pop("ended", False):
            *_, last = log.read_text(errors="replace").strip().splitlines() or ["no output"]
            part = "reward" if "rows" in self.found else "model or rows"
            self.find(f"{part}: {last}" + f" (code {child.returncode})" * (child.returncode != 1), stops=True)

    def value(self, flag: str) -> Any:
        return reduce(getattr, flag.removeprefix("--").split("."), self.start.run.args)

    def small(self) -> Request:
        """The request of the small run: the same, with the changes as if typed."""
        request, flags = self.start.request, self.start.run.flags
        self.changes = [
            Change(MODEL, str(self.folder / "model"), f"a random copy: {self.found['about']}"),
            Change(TRAINING, str(self.folder / "train.jsonl"), "rows of median length"),
            Change(VALIDATION, str(self.folder / "eval.jsonl") if self.files(VALIDATION) else None, "a few rows"),
            self.planted(),
            *shrink.changes(self.value, self.found["longest"]),
            *(Change(flag, None, "no report of this") for flag in flags if flag.startswith("--logger.wandb.")),
        ]
        recipe = replace(request.recipe, name=f"{REHEARSAL}{request.recipe.name}", on_cpu=True)
        stem = run_folder.run_stem(recipe.name, request.args.algo, self.start.run.args.train.seed)
        args = argparse.Namespace(**vars(request.args) | {"runs_dir": self.folder, "run_name": RUN, "dry_run": False})
        request = replace(request, args=args, recipe=recipe, stem=stem, folder=self.folder / RUN, secrets={})
        run = self.changed(request).run
        idle = {flag: why for flag, why in run.unread.items() if run.flags[flag].origin == USER}
        self.changes += [Change(flag, None, f"it would need {why}") for flag, why in idle.items()]
        return self.changed(request)

    def changed(self, request: Request) -> Request:
        after = {change.flag: change.after for change in self.changes}
        user = {flag: words for flag, words in request.user.items() if flag not in after}
        user |= {flag: (text,) * bool(text) for flag, text in after.items() if text is not None and text != FOLLOWS}
        removed = [flag for flag in request.removed if flag not in after]
        return replace(request, user=user, removed=removed + [flag for flag, text in after.items() if text is None])

    def planted(self) -> Change:
        """A file of the rehearsal's that asks the user's."""
        file, agent, reward = self.folder / "planted.py", self.start.run.text(AGENT), self.start.run.text(REWARD)
        asks = f"planted({reward.split(',')!r}, {self.found['trial'].get('form')!r}, {self.found['end']!r})"
        plays = f"planted_agent({agent!r}, {self.value('--rollout.mismatch') != 'off'})"
        write_text(file, [PLANTED.format(f"AgentExecutor = {plays}" if agent else f"reward_func = {asks}")])
        return Change(AGENT if agent else REWARD, str(file), "yours, and every second response is made right")

    def train(self) -> None:
        small, path, ended = Start.of(self.small()), self.folder / RUN, threading.Event()
        print("\n".join(table(self.start.run, small.run, self.changes)), flush=True)
        for problem in run_checks.findings(small).problems:
            self.find(f"the small run: {problem}", stops=True)
        if self.stops:
            return
        killer = threading.Thread(target=kill_at_last_step, args=(path, ended), daemon=True)
        killer.start()
        training = trained(small)
        ended.set()
        killer.join()
        steps = [numbers(path, step) for step in range(1, STEPS + 1)]
        if not steps[-1]:
            loss = self.start.run.text(OBJECTIVE)
            of = f" (with {loss})" * (".py:" in loss)
            self.died(training, f"the training ends in step {sum(map(bool, steps)) + 1}: {training.reason}{of}")
            return
        last = ", ".join(f"{key} {steps[-1][key]:.4g}" for key in STORY if key in steps[-1])
        self.notes.append(f"step {STEPS}: {last}")
        ungraded = max(step.get("rollout/frac_ungraded", 0.0) for step in steps)
        if ungraded > FEW:
            self.find(f"{ungraded:.0%} of a step's responses are ungraded", ungraded)
        if not any(step.get("actor_grad_norm") for step in steps):
            self.find("no step had a gradient: each group was all right, all wrong or ungraded")
        # whole, if the kill came late
        shutil.rmtree(path / CHECKPOINTS / "_actor" / f"global_step{STEPS}", ignore_errors=True)
        training = trained(Start.of(small.request.resuming()))
        if training.code:
            self.died(training, f"the run does not resume after a kill: {training.reason}")
        else:
            self.compare(steps[-1], numbers(path, STEPS))

    def died(self, training: Training, text: str) -> None:
        """A finding if the run ended itself; what is killed may lack this machine's memory."""
        text = f"{text}. Its output: {training.path / 'train.log'}"
        if training.code in (1, STALLED):
            self.find(text)
        else:
            self.crash = text

    def compare(self, before: dict, after: dict) -> None:
        differ = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        args, count = self.start.run.args, f"{len(after)} numbers of step {STEPS}"
        if not differ:
            self.notes.append(f"killed and resumed from step {SAVED}: all {count} are the same, bit for bit")
        elif args.rollout.seeded and not args.train.async_enable:
            self.find(f"resumed after a kill, {len(differ)} of {count} differ: {', '.join(differ[:4])}")
        else:
            self.notes.append(f"killed and resumed from step {SAVED}: unseeded, so {len(differ)} of {count} differ")


def trained(start: Start) -> Training:
    training = command.trained(start)
    if training.code in command.SIGNALS:
        raise Ended(training.code - 128)
    return training


def kill_at_last_step(path: Path, ended: threading.Event) -> None:
    """While the trainer saves: its last step is logged just before."""
    while not ended.wait(0.05):
        if numbers(path, STEPS):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((path / LOCK).read_text()), signal.SIGKILL)
            return


def numbers(path: Path, step: int) -> dict[str, Any]:
    """What the run logged of this step last, but times."""
    log = path / METRICS
    rows = run_folder.logged_rows(log.read_bytes() if log.exists() else b"")
    lines = [row for row in rows if row["phase"] == "train" and row["step"] == step]
    return {key: value for key, value in (lines or [{}])[-1].items() if not key.startswith(("time", "timing/"))}
