"""Kills processes of small runs at random moments, resumes, and compares with the run that nobody killed.

    python benchmarks/kill_campaign.py --out DIR [--trials 40] [--seed 0] [--victims trainer engine] [--kinds real/1]

The trials take the kinds of run in turn: algorithm, ranks, asynchronous or not. An asynchronous run, whose rollouts
depend on who is faster, must have every line once, with the prompts of the run that nobody killed; any other must have
all its numbers, bit for bit. Each trial is one line of DIR/trials.jsonl, and DIR/table.md is made anew after each; the
same command goes on with the trials that are missing. A trial takes a minute and a half on two cores. Exit code 1 if
anything was lost.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from real_openrlhf.rewards import math_reward
from real_openrlhf.runs import run_folder

BOX = r"\boxed{"

STEPS, EVERY, PATIENCE = 6, 2, 300.0
FLAGS = (
    *("--recipe", "cpu", "--seed", "1", "--max-steps", str(STEPS), "--eval.steps", "3"),
    *("--ckpt.save_steps", str(EVERY), "--reward.remote_url", str(Path(__file__).resolve())),
)
ENGINE_APART = ("--no-train.colocate_all", "--vllm.num_engines", "1")
TWO_RANKS, ASYNCHRONOUS = ("--gpus", "2", *ENGINE_APART), ("--train.async_enable",)
ALGORITHMS = ("real", "grpo", "dapo", "trpa")
KINDS: dict[str, tuple[str, ...]] = {
    **{f"{algo}/1": ("--algo", algo) for algo in ALGORITHMS},
    **{f"{algo}/2": ("--algo", algo, *TWO_RANKS) for algo in ALGORITHMS},
    **{f"{algo}/1/async": ("--algo", algo, *ENGINE_APART, *ASYNCHRONOUS) for algo in ALGORITHMS[:2]},
    **{f"{algo}/2/async": ("--algo", algo, *TWO_RANKS, *ASYNCHRONOUS) for algo in ALGORITHMS[2:]},
}
SIGNALS = ("SIGKILL", "SIGTERM")
MOMENTS = ("any", "checkpoint", "sync")


def reward_func(queries, prompts, labels):
    """The reward of every run: the shipped one, with one prompt in ten judged by algebra, so that its workers work."""
    (query,), (prompt,), (label,) = queries, prompts, labels
    if not prompt.startswith("1"):
        return math_reward.reward_func(queries, prompts, labels)
    said = query.replace(BOX, rf"{BOX}\sqrt{{{label}}}+")
    return math_reward.reward_func([said], prompts, [rf"{label}+\sqrt{{{label}}}"])


def titled(*words: str) -> Callable[[str], bool]:
    return lambda command: any(word in command for word in words)


# How a victim's command line begins or what it contains, as the kernel shows it.
VICTIMS: dict[str, Callable[[str], bool]] = {
    "trainer": titled("openrlhf.cli.train_ppo_ray"),
    "controller": titled("ray::PPOTrainer"),
    "policy": titled("ray::PolicyModelActor"),
    "rollout": titled("ray::RolloutRayActor"),
    "engine": titled("VLLM::EngineCore"),
    "verifier": titled("same_answer.worker"),
    "head": titled("gcs_server"),
    "raylet": titled("raylet/raylet"),
    "supervisor": titled("real_openrlhf.cli train"),
}


@dataclass
class Trial:
    number: int
    kind: str
    victim: str
    signal: str
    moment: str
    step: int  # from which on the moment is waited for
    delay: float
    killed_at: float | None = None  # steps logged by then
    told_after: float | None = None  # seconds until the command ended, or until the folder said what happened
    told: str = ""
    left: list[str] = field(default_factory=list)  # processes that were still there ten seconds later
    checkpoint: int = 0  # the newest whole one at the kill
    resumed_after: int | None = None  # None: the run came to its end
    failures: list[str] = field(default_factory=list)


def plan(seed: int, count: int, victims: list[str], kinds: list[str]) -> Iterator[Trial]:
    """Every victim with every signal and moment before any comes again, in an order made of the seed."""
    combinations = list(itertools.product(victims, SIGNALS, MOMENTS))
    draw = random.Random(seed)
    number = 0
    while number < count:
        draw.shuffle(combinations)
        for victim, name, moment in combinations[: count - number]:
            kind = kinds[number % len(kinds)]
            yield Trial(number, kind, victim, name, moment, draw.randint(1, STEPS - 1), draw.uniform(0, 1.2))
            number += 1


def command(runs: Path, name: str, kind: str, *more: str) -> list[str]:
    where = ("--runs-dir", str(runs), "--run-name", name)
    return [sys.executable, "-m", "real_openrlhf.cli", "train", *FLAGS, *KINDS[kind], *where, *more]


def through(runs: Path, kind: str) -> Path:
    """The run of this kind that nobody kills; made when it is first asked for."""
    folder = runs / f"through-{kind.replace('/', '-')}"
    if not folder.exists() or run_folder.state(folder)["status"] != "finished":
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(command(runs, folder.name, kind), check=True)
    return folder


def lines(folder: Path) -> list[dict]:
    path = folder / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def steps(folder: Path) -> int:
    return max((line["step"] for line in lines(folder) if line["phase"] == "train"), default=0)


def decided(line: dict, kind: str) -> dict:
    """What the seed decides: all numbers but times, or only the prompts where the sampler runs ahead."""
    if kind.endswith("async"):
        return {key: value for key, value in line.items() if key == "rollout/prompts_crc"}
    return {key: value for key, value in line.items() if key != "time" and not key.startswith("timing/")}


def differences(found: Path, expected: Path, kind: str) -> list[str]:
    """In words: lines that are missing or twice, and lines with other numbers."""
    here, there = lines(found), lines(expected)
    names = [(line["phase"], line["step"]) for line in here]
    twice = sorted({name for name in names if names.count(name) > 1})
    said = [f"{phase} line of step {step} is there twice" for phase, step in twice]
    for line in there:
        name = (line["phase"], line["step"])
        if name not in names:
            said.append(f"{name[0]} line of step {name[1]} is missing")
        elif (other := decided(here[names.index(name)], kind)) != decided(line, kind):
            keys = [key for key in {**decided(line, kind), **other} if other.get(key) != line.get(key)]
            said.append(f"{name[0]} line of step {name[1]} differs in {len(keys)} numbers: {' '.join(keys[:4])}")
    return said


def newest_checkpoint(folder: Path) -> int:
    """By name, as the kill must not wait."""
    return max((int(path.name[11:]) for path in folder.glob("checkpoints/_actor/global_step*")), default=0)


def below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def said_by(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def find(everybody: list[psutil.Process], victim: str) -> psutil.Process | None:
    found = [process for process in everybody if VICTIMS[victim](said_by(process))]
    return found[0] if found else None


def wait_for_moment(
    trial: Trial, child: subprocess.Popen, folder: Path
) -> tuple[psutil.Process | None, list[psutil.Process]]:
    """The victim, when its time has come, and every process of the run; no victim if the run ended before."""
    while child.poll() is None and steps(folder) < trial.step:
        time.sleep(0.02)
    everybody = below(psutil.Process(child.pid))
    victim, policy = find(everybody, trial.victim), find(everybody, "policy")
    writing = folder / "checkpoints" / "_actor" / ".writing"
    end = time.monotonic() + trial.delay
    reached = {
        "any": lambda: time.monotonic() > end,
        "checkpoint": writing.exists,
        "sync": lambda: policy is not None and "broadcast_to_vllm" in said_by(policy),
    }[trial.moment]
    while child.poll() is None and not reached():
        time.sleep(0.001)
    return (victim if child.poll() is None else None), everybody


def run(trial: Trial, runs: Path) -> Trial:
    expected = through(runs, trial.kind)
    name = f"trial-{trial.number}"
    folder = runs / name
    shutil.rmtree(folder, ignore_errors=True)
    output = runs / f"{name}.out"
    output.unlink(missing_ok=True)
    with started(command(runs, name, trial.kind), output) as child:
        victim, everybody = wait_for_moment(trial, child, folder)
        if victim is None:
            trial.failures.append(f"the run ended before its moment: {last_line(output)}")
            return trial
        trial.checkpoint = newest_checkpoint(folder)
        os.kill(victim.pid, getattr(signal, trial.signal))
        trial.killed_at = steps(folder)
        tell(trial, child, folder)
    time.sleep(10)
    trial.left = sorted({said_by(process)[:60] for process in everybody if process.is_running() and said_by(process)})
    status = run_folder.state(folder)
    if status["status"] != "finished":
        resume(trial, runs, folder, output)
    trial.failures += differences(folder, expected, trial.kind)
    if run_folder.state(folder)["status"] != "finished":
        trial.failures.append("the run is not finished")
    return trial


@contextlib.contextmanager
def started(words: list[str], output: Path) -> Iterator[subprocess.Popen]:
    """A run that is not there any more afterwards, whatever happens to the campaign meanwhile."""
    with output.open("a") as file:
        child = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        yield child
    finally:
        for process in below(psutil.Process(child.pid)) if child.poll() is None else []:
            with contextlib.suppress(psutil.Error):
                process.kill()
        child.wait()


def tell(trial: Trial, child: subprocess.Popen, folder: Path) -> None:
    """Wait until somebody says what happened. A killed supervisor says nothing: there the folder has to."""
    killed, deadline = time.monotonic(), time.monotonic() + PATIENCE
    while time.monotonic() < deadline and (child.poll() is None or run_folder.is_running(folder)):
        time.sleep(0.05)
    trial.told_after = round(time.monotonic() - killed, 1)
    record = run_folder.state(folder)
    trial.told = ": ".join(filter(None, (record["status"], record["reason"])))[:160]
    if time.monotonic() >= deadline:
        trial.failures.append(f"nothing was told within {PATIENCE:.0f} s")
    elif record["status"] == "running":
        trial.failures.append("the folder says that it is running, and nothing is")


def resume(trial: Trial, runs: Path, folder: Path, output: Path) -> None:
    with started(command(runs, folder.name, trial.kind, "--resume"), output) as child:
        try:
            code = child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = f"none within {PATIENCE:.0f} s"
    if code:
        trial.failures.append(f"resume: exit code {code}: {last_line(output)}"[:300])
    path = folder / "notes.jsonl"
    notes = map(json.loads, path.read_text().splitlines() if path.exists() else ())
    trial.resumed_after = max((note["step"] for note in notes if note["say"].startswith("goes on")), default=0)
    if trial.resumed_after < trial.checkpoint:
        trial.failures.append(f"went on after step {trial.resumed_after}, though {trial.checkpoint} was saved")


def last_line(path: Path) -> str:
    return next((line for line in reversed(path.read_text(errors="replace").splitlines()) if line.strip()), "")


def table(trials: list[Trial]) -> str:
    lost = sum(bool(trial.failures) for trial in trials)
    rows = [
        f"{len(trials)} trials, {lost} with a loss.",
        "",
        "| # | run | killed | with | when | told after | told as | checkpoint | went on after | lost or wrong |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for t in trials:
        when = f"{'step' if t.moment == 'any' else t.moment}, {t.killed_at} steps logged"
        on = "came to its end" if t.resumed_after is None else t.resumed_after
        wrong = "; ".join([*t.failures, *(f"still there: {left}" for left in t.left)]) or "nothing"
        cells = (t.number, t.kind, t.victim, t.signal, when, f"{t.told_after} s", t.told, t.checkpoint, on, wrong)
        rows.append(
            "| " + " | ".join(re.sub(r"\x1b\[\d*\w|\s+", " ", str(cell).replace("|", "/")) for cell in cells) + " |"
        )
    return "\n".join(rows).replace(sys.prefix, ".venv") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--victims", nargs="+", choices=VICTIMS, default=list(VICTIMS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    runs, log = (args.out / "runs").resolve(), args.out / "trials.jsonl"
    runs.mkdir(parents=True, exist_ok=True)
    done = [Trial(**json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []
    for trial in plan(args.seed, args.trials, args.victims, args.kinds):
        if trial.number in {one.number for one in done}:
            continue
        done.append(run(trial, runs))
        with log.open("a") as file:
            file.write(json.dumps(asdict(done[-1])) + "\n")
        (args.out / "table.md").write_text(table(done))
        print(table(done).splitlines()[-1], flush=True)
        if not done[-1].failures:
            shutil.rmtree(runs / f"trial-{trial.number}")
    return int(any(trial.failures for trial in done))


if __name__ == "__main__":
    sys.exit(main())
