"""`train --rehearse` and `compare --rehearse`: try rows and reward, shrink the run, train it, kill it, resume it."""

import argparse
import contextlib
import os
import re
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
from real_openrlhf.base.files import parsed, write_json, write_text
from real_openrlhf.base.run_files import CHECKPOINTS, LOCK, METRICS
from real_openrlhf.base.run_files import MODEL as WEIGHTS
from real_openrlhf.base.secrets import REWARD
from real_openrlhf.comparison.runs import Runs
from real_openrlhf.flags import refusals
from real_openrlhf.recipes import shrink
from real_openrlhf.recipes.run import AGENT, MODEL, OBJECTIVE, TRAINING, USER, VALIDATION
from real_openrlhf.recipes.shrink import FOLLOWS, STEPS, Change
from real_openrlhf.rehearsal.page import Page, table
from real_openrlhf.rehearsal.rows import Finding
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command, tiny_task
from real_openrlhf.training.checks import Findings, data_check, run_checks
from real_openrlhf.training.launch_target import LaunchTarget
from real_openrlhf.training.request import Request
from real_openrlhf.training.start import Start

RUN = "run"  # the small run's folder, in the rehearsal's
SPOILED = 3  # exit code with findings; a crash has 1, a command that cannot be read 2
SECONDS = 1800.0  # of the trial, at most
FEW = 0.05  # a share of ungraded responses that is no finding
PLANTED = "from real_openrlhf.rehearsal.planted import planted, planted_agent\n\n{}\n"
STORY = ("rollout/pass_rate", "policy_loss", "actor_grad_norm", "sampling/logprob_diff_mean", "response_length")


def run(args: argparse.Namespace) -> int:
    if args.dry_run:
        raise UserError("--dry-run starts nothing, and --rehearse trains. Give one of them.")
    codes = []
    for request in [Request.from_args(args)] if args.command == "train" else of_methods(Runs.from_args(args)):
        codes.append(rehearse(request))
        if codes[-1] in command.SIGNALS:
            return codes[-1]
    return max(codes)


def of_methods(runs: Runs) -> list[Request]:
    """The first run of each method."""
    first = {(entry.algo, entry.flags): entry for entry in reversed(runs.entries)}
    return [_with(runs.request(entry), runs_dir=runs.out) for entry in reversed(first.values())]


def rehearse(request: Request) -> int:
    # checked as a dry run is: for another machine, and whatever has begun
    start = Start.of(_with(replace(request, resumed=None), dry_run=True, resume=False, run_name=None))
    if start.run.problems:
        raise UserError(*start.run.problems)
    if not (start.run.text(REWARD) or start.run.text(AGENT)):
        raise UserError("--rehearse tries a reward function, a server or an agent, and this run has a reward model.")
    os.environ.pop("RAY_ADDRESS", None)  # of the cluster that will train the run
    if lacking := [why for why in _here(start).launch_problems(start.run) if "adam_offload" not in why]:
        raise UserError(*lacking)
    command.show(replace(start, request=_with(start.request, dry_run=False)))
    folder = run_folder.create(request.args.runs_dir, f"rehearsal-{request.stem}", None).resolve()
    print(f"rehearsal folder: {folder}", flush=True)
    rehearsal = Rehearsal(start, folder)
    try:
        if (code := rehearsal.run()) not in command.SIGNALS:
            rehearsal.write()
        return code
    except Exception as error:
        rehearsal.crash = f"{type(error).__name__}: {last_line(error)}"
        rehearsal.write()
        raise
    finally:
        for made in (CHECKPOINTS, WEIGHTS):  # random weights
            shutil.rmtree(folder / RUN / made, ignore_errors=True)


def _with(request: Request, **changes: Any) -> Request:
    return replace(request, args=argparse.Namespace(**{**vars(request.args), **changes}))


def _here(start: Start) -> LaunchTarget:
    return LaunchTarget.for_recipe(replace(start.request.recipe, on_cpu=True))


@dataclass
class Rehearsal(Page):
    changes: list[Change] = field(default_factory=list)

    def run(self) -> int:
        """The exit code. A part ends the rehearsal if the next one would try nothing."""
        with self.part("checks of a dry run"):
            files = self.check()
        if not self.stops:
            with self.part("model, rows and reward"):
                self.try_parts(files)
        if not self.stops:
            small = Start.of(self.small(bool(files[VALIDATION])))
            print("\n".join(table(self.start.run, small.run, self.changes)), flush=True)
            for problem in run_checks.findings(small).problems:
                self.find(f"the small run: {problem}", stops=True)
        if not self.stops:
            with self.part(f"{STEPS} steps, a kill, a resume"):
                if (code := self.train(small)) in command.SIGNALS:
                    return code
        return SPOILED if self.findings else 0

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        print(f"\nrehearsal: {name}", flush=True)
        yield
        self.seconds[name] = round(time.monotonic() - begin, 1)

    def check(self) -> dict[str, list[str]]:
        """What a dry run finds; the files of rows that are here, by their flags."""
        for path, make in self.start.request.missing().items():
            if str(path) != self.start.run.text(VALIDATION) and not path.exists():  # a task's are made together
                try:
                    make()
                except UserError as error:
                    self.find(str(error), stops=True)
        self.start = Start.of(replace(self.start.request))  # its flags follow from these files
        request, run = self.start.request, self.start.run
        few = {*data_check.step_problems(run.args, request.rows)} if request.rows is not None else set()
        others = {*refusals.gpu_problems(run.args)}  # of a command for GPUs with the recipe for none
        for check in run_checks.CHECKS:
            (every := Findings()).add(check(self.start))
            self.dry += [note for note in every.notes if note not in self.start.lacking]
            for problem in every.problems:
                # what does not fit is counted below, with the chat template
                if problem not in others and "does not fit into --data.max_len" not in problem:
                    self.find(problem, stops=problem not in few and check.__name__ in ("data", "_reward"))
        files = {flag: run.text(flag).split(",") if run.text(flag) else [] for flag in (TRAINING, VALIDATION)}
        name = next((name for name in files[TRAINING] if not Path(name).is_file()), "")
        if name and not self.stops:
            self.find(f"{name} is no file here. `real-openrlhf data {name} --out FILE.jsonl` writes one", stops=True)
        if away := [name for name in files[VALIDATION] if not Path(name).is_file()]:
            self.notes.append(f"validation: not rehearsed, {away[0]} is no file here")
            files[VALIDATION] = []
        return files

    def try_parts(self, files: dict[str, list[str]]) -> None:
        """In a process of its own, in another folder; it ends with all that the reward has started."""
        run, code, log = self.start.run, 124, self.folder / "trial.log"
        places = {"cache": str(tiny_task.cache_folder() / "rehearsal"), "folder": str(self.folder)}
        asked = {"argv": run.argv(), "files": files[TRAINING], "validation": files[VALIDATION], **places}
        with tempfile.TemporaryDirectory() as elsewhere, log.open("w") as output:
            question, answers = Path(elsewhere, "asked.json"), Path(elsewhere, "found.json")
            write_json(question, asked | {"count": shrink.drawn(self.value) * STEPS})
            words = [sys.executable, "-m", "real_openrlhf.rehearsal.tried", str(question), str(answers)]
            variables, both = _here(self.start).environment(run), subprocess.STDOUT
            child = subprocess.Popen(
                words, env=variables, cwd=elsewhere, start_new_session=True, stdout=output, stderr=both
            )
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(SECONDS)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            self.found = parsed(answers.read_bytes()) if answers.exists() else {}
        self.notes += self.found.pop("notes", ())
        for finding in self.found.pop("findings", ()):
            name = re.search(r"No such file or directory: '([^/'][^']*)'", finding["text"])
            where = "found only where a run starts in one folder, on one node: open Path(__file__).parent"
            here = f". A relative path is {where} / '{name[1]}'" if name else ""
            self.findings.append(Finding(**finding | {"text": finding["text"] + here}))
        if code or "ended" not in self.found:
            *_, last = log.read_text(errors="replace").strip().splitlines() or ["no output"]
            part = "reward or agent" if "rows" in self.found else "model or rows"
            self.find(f"{part}: its process ended with code {code}: {last}", stops=True)

    def value(self, flag: str) -> Any:
        return reduce(getattr, flag.removeprefix("--").split("."), self.start.run.args)

    def small(self, validates: bool) -> Request:
        """The request of the small run: the same, with the changes as if typed."""
        request, flags = self.start.request, self.start.run.flags
        ranks = 2 if request.user.get("--actor.num_gpus_per_node") == ("2",) else 1
        self.changes = [
            Change(MODEL, self.found["model"], f"a random copy: {self.found['about']}"),
            Change(TRAINING, str(self.folder / "train.jsonl"), "rows of median length"),
            Change(VALIDATION, str(self.folder / "eval.jsonl") if validates else None, "a few rows"),
            self.planted(),
            *shrink.changes(self.value, self.found["longest"], ranks),
        ]
        self.changes += [
            Change(flag, None, "no report of this") for flag in flags if flag.startswith("--logger.wandb.")
        ]
        recipe = replace(request.recipe, name=f"rehearsal-{request.recipe.name}", on_cpu=True, gpus=ranks)
        stem = run_folder.run_stem(recipe.name, request.args.algo, self.start.run.args.train.seed)
        request = replace(request, recipe=recipe, stem=stem, folder=self.folder / RUN, secrets={})
        request = _with(request, runs_dir=self.folder, run_name=RUN, dry_run=False)
        run = self.changed(request).run
        idle = {flag: why for flag, why in run.unread.items() if run.flags[flag].origin == USER}
        self.changes += [Change(flag, None, f"it would need {why}") for flag, why in idle.items()]
        return self.changed(request)

    def changed(self, request: Request) -> Request:
        after = {change.flag: change.after for change in self.changes}
        user = {flag: words for flag, words in request.user.items() if flag not in after}
        user |= {flag: tuple(text.split()) for flag, text in after.items() if text not in (None, FOLLOWS)}
        removed = [flag for flag in request.removed if flag not in after]
        return replace(request, user=user, removed=removed + [flag for flag, text in after.items() if text is None])

    def planted(self) -> Change:
        """A file of the rehearsal's that asks the user's."""
        file, agent, reward = self.folder / "planted.py", self.start.run.text(AGENT), self.start.run.text(REWARD)
        asks = f"planted({reward.split(',')!r}, {self.found['trial'].get('form')!r}, {self.found['end']!r})"
        line = f"AgentExecutor = planted_agent({agent!r})" if agent else f"reward_func = {asks}"
        write_text(file, [PLANTED.format(line)])
        return Change(AGENT if agent else REWARD, str(file), "yours, and every second response is made right")

    def train(self, small: Start) -> int:
        path, ended = self.folder / RUN, threading.Event()
        killer = threading.Thread(target=kill_at_last_step, args=(path, ended), daemon=True)
        killer.start()
        training = command.trained(small)
        ended.set()
        killer.join()
        steps = {step: numbers(path, step) for step in range(1, STEPS + 1)}
        if not steps[STEPS]:
            if training.code not in command.SIGNALS:
                step = sum(map(bool, steps.values())) + 1
                loss = self.start.run.text(OBJECTIVE)
                of = f" (with {loss})" * (".py:" in loss)
                self.find(f"the training ends in step {step}: {training.reason}{of}. Its output: {path / 'train.log'}")
            return training.code
        self.notes.append(
            f"step {STEPS}: {', '.join(f'{k} {steps[STEPS][k]:.4g}' for k in STORY if k in steps[STEPS])}"
        )
        ungraded = max(step.get("rollout/frac_ungraded", 0.0) for step in steps.values())
        if ungraded > FEW:
            self.find(f"{ungraded:.0%} of a step's responses are ungraded", ungraded)
        if not any(step.get("actor_grad_norm") for step in steps.values()):
            self.find("no step had a gradient: each group was all right, all wrong or ungraded")
        # whole, if the kill came late
        shutil.rmtree(path / CHECKPOINTS / "_actor" / f"global_step{STEPS}", ignore_errors=True)
        training = command.trained(Start.of(_with(small.request, resume=True).resuming()))
        if training.code not in command.SIGNALS:
            self.compare(steps[STEPS], {} if training.code else numbers(path, STEPS), training.reason)
        return training.code

    def compare(self, before: dict, after: dict, reason: str | None) -> None:
        differ = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        args, count = self.start.run.args, f"{len(after)} numbers of step {STEPS}"
        if not after:
            self.find(f"the run does not resume after a kill: {reason}")
        elif not differ:
            self.notes.append(f"killed and resumed from step {shrink.SAVED}: all {count} are the same, bit for bit")
        elif args.rollout.seeded and not args.train.async_enable:
            self.find(f"resumed after a kill, {len(differ)} of {count} differ: {', '.join(differ[:4])}")
        else:
            self.notes.append(
                f"killed and resumed from step {shrink.SAVED}: unseeded, so {len(differ)} of {count} differ"
            )


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
