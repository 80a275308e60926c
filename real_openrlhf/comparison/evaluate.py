"""The evaluation of a comparison's run: `real-openrlhf eval` in a process of its own, watched like a training."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from real_openrlhf.base.files import parsed, write_json
from real_openrlhf.runs import run_folder
from real_openrlhf.training import run_inputs
from real_openrlhf.training.launch.process import supervise

ASKED = "asked.json"  # in eval/, by an evaluation that reached its end
BAR = re.compile(r"sampling: .*?(\d+)/(\d+) \[[^<\]]*(?:<([\d:]+))?")  # of evaluation/command.py


def make_benchmarks(words: Sequence[str]) -> None:
    """Those that an evaluation will read by name, once for all runs."""
    from real_openrlhf.data.benchmarks import BENCHMARKS
    from real_openrlhf.data.command import prepare_benchmark

    said = dict(zip(words, words[1:], strict=False))
    missing = [
        (name, file)
        for name in said.get("--benchmarks", "").split(",")
        if name in BENCHMARKS and "--data-dir" in said
        if not (file := Path(said["--data-dir"]) / f"{name}.jsonl").exists()
        if not list(file.parent.glob(f"{BENCHMARKS[name].stem}.*"))  # as the paper's baselines have it
    ]
    if missing:
        with run_inputs.made_once():
            for name, file in missing:
                if not file.exists():
                    prepare_benchmark(name, None, file)


def is_evaluated(path: Path, words: Sequence[str]) -> bool:
    try:
        return parsed((path / "eval" / ASKED).read_bytes()) == {"words": [*words]}
    except (ValueError, OSError):
        return False


def sampled(path: Path) -> str:
    """`evaluation, 34 of 96 samples, 02:10 left`"""
    log = path / "eval.log"
    found = BAR.findall(log.read_text(errors="replace")[-4000:]) if log.exists() else []
    if not found:
        return "evaluation"
    done, total, left = found[-1]
    return f"evaluation, {done} of {total} samples" + (f", {left} left" if left else "")


class Sampling:
    """What `supervise` calls while the evaluation runs: a bar over its samples."""

    def __init__(self, path: Path) -> None:
        self.path, self.log = path, path / "eval.log"
        self.log.unlink(missing_ok=True)
        self.bar = tqdm(unit="sample", desc="evaluation", disable=not sys.stderr.isatty(), leave=False)

    def update(self) -> None:
        if found := BAR.findall(self.log.read_text(errors="replace")[-4000:]):
            done, total, _ = found[-1]
            self.bar.total = int(total)
            self.bar.update(int(done) - self.bar.n)

    def close(self) -> None:
        self.bar.close()


def evaluate(path: Path, words: Sequence[str]) -> tuple[int, str | None]:
    """(exit code, why it failed). What was sampled before an interrupt is kept."""
    command = [sys.executable, "-m", "real_openrlhf.cli", "eval", "--name", path.name]
    command += ["--model", str(path / "model"), "--out", str(path / "eval"), *words]
    print(f"evaluation; its output goes to {path / 'eval.log'}", flush=True)
    with run_folder.only_one(path) as lock:
        code, reason = supervise(command, os.environ, lock, Sampling(path))
    if not code:
        write_json(path / "eval" / ASKED, {"words": [*words]})
        print((path / "eval" / "table.md").read_text(), flush=True)
    return code, f"evaluation: {reason}" if code else None
