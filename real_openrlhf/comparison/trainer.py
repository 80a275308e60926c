"""Trains and evaluates the runs of a comparison one after another."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from real_openrlhf.base.errors import exit_code
from real_openrlhf.base.files import write_json
from real_openrlhf.base.parsing import Parser
from real_openrlhf.comparison.run_list import ASKED, SIGNALS, Entry, RunList, samples
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command as train_command
from real_openrlhf.training import run_inputs
from real_openrlhf.training.launch.process import supervise
from real_openrlhf.training.launch.progress import end_unwatched


class Trainer:
    """Trains and evaluates run after run."""

    def __init__(self, runs: RunList) -> None:
        self.runs = runs

    def one(self, entry: Entry) -> tuple[int, str | None]:
        """Train and evaluate one run: (exit code, why it failed)."""
        path = self.runs.path(entry)
        if unseen := end_unwatched(path):
            print(unseen)
        if not self.runs.trained(entry):
            args = train_command.parse(self.runs.words(entry))
            if code := exit_code("train", lambda: train_command.run(args)):
                reason = run_folder.read(path)["reason"] if (path / "run.json").exists() else None
                unknown = "interrupted" if code in SIGNALS else "it did not start: the output above says why"
                return code, reason or unknown
        return evaluate(path, self.runs.evaluation) if self.runs.evaluation is not None else (0, None)


# Evaluation: `real-openrlhf eval` in a process of its own, watched like a training


def eval_args(words: Sequence[str]) -> argparse.Namespace:
    """These words of `eval` parsed, with its defaults."""
    from real_openrlhf.evaluation import command

    parser = Parser("real-openrlhf compare: --eval-flags")
    command.configure(parser)
    return parser.parse_args([*words])


def make_benchmarks(words: Sequence[str]) -> None:
    """Make the benchmarks that these words of `eval` name, once for all runs."""
    from real_openrlhf.data.benchmarks import BENCHMARKS
    from real_openrlhf.data.command import prepare_benchmark

    args = eval_args(words)
    if args.data_dir is None:
        return
    with run_inputs.made_once():
        for name in filter(BENCHMARKS.get, args.benchmarks.split(",")):
            file = args.data_dir / f"{name}.jsonl"
            # the folder of the paper's baselines has other names for the files
            if not (file.exists() or any(args.data_dir.glob(f"{BENCHMARKS[name].stem}.*"))):
                prepare_benchmark(name, None, file)


class Sampling:
    """Counts the samples of an evaluation, for `supervise`."""

    def __init__(self, path: Path) -> None:
        self.path, self.log = path, path / "eval.log"
        self.log.unlink(missing_ok=True)
        self.bar = tqdm(unit="sample", desc="evaluation", disable=not sys.stderr.isatty(), leave=False)

    def update(self) -> None:
        self.bar.update(samples(self.path) - self.bar.n)

    def close(self) -> None:
        self.bar.close()


def evaluate(path: Path, words: Sequence[str]) -> tuple[int, str | None]:
    """Evaluate one run: (exit code, why it failed). An interrupted evaluation keeps its samples."""
    command = [sys.executable, "-m", "real_openrlhf.cli", "eval", "--name", path.name]
    command += ["--model", str(path / "model"), "--out", str(path / "eval"), *words]
    print(f"evaluation; its output goes to {path / 'eval.log'}", flush=True)
    with run_folder.only_one(path) as lock:
        code, reason = supervise(command, os.environ, lock, Sampling(path))
    if reason:
        return code, f"evaluation: {reason}"
    write_json(path / "eval" / ASKED, {"words": [*words]})
    print((path / "eval" / "table.md").read_text(encoding="utf-8"), flush=True)
    return code, None
