"""Runs of the real stack: Ray actors, ZeRO-3 policies, a vLLM engine.

`train` and `train_on_two` fork the processes of a run; `.ci/run` types one as users do, and so does `every`.
"""

import contextlib
import json
import math
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import forked_workers
import psutil
import pytest
from small_runs import LEARNING

from real_openrlhf.training import tiny_task

HERE = Path(__file__).parent
SECONDS = 1800  # after which a run has failed
LOOK_SECONDS = 1  # a look at all processes takes a tenth of a second; the shortest run takes three
# The verifier fails on these, and failing_reward.py asks it about them.
FAULTS = {"hang": r"\clubsuit", "oom": r"\heartsuit", "exit": r"\spadesuit"}


@dataclass
class Run:
    folder: Path
    code: int
    output: str
    actors: set[str]  # titles of the Ray actors seen while it ran
    listening: set[str] = field(default_factory=set)  # addresses and processes of its sockets that are open to others

    def lines(self, phase: str, log: str = "metrics.jsonl") -> list[dict]:
        text = (self.folder / log).read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["phase"] == phase]

    def numbers(self, phase: str = "train", log: str = "metrics.jsonl") -> list[dict[str, float]]:
        """All that was logged but times."""
        times = ("time", "timing/")
        return [{key: v for key, v in line.items() if not key.startswith(times)} for line in self.lines(phase, log)]

    def values(self, key: str) -> list[float]:
        return [line[key] for line in self.lines("train")]

    @property
    def finite(self) -> bool:
        numbers = (value for line in self.lines("train") for value in line.values() if isinstance(value, float))
        return all(map(math.isfinite, numbers))

    @property
    def log(self) -> str:
        path = self.folder / "train.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def ended(self, code: int) -> "Run":
        assert self.code == code, f"{self.output}\n{self.log[-6000:]}"
        return self


def look(process: psutil.Process, actors: set[str], listening: set[str]) -> None:
    """`ray::PolicyModelActor.fit` is a PolicyModelActor; and what listens elsewhere than on the loopback."""
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = child.cmdline()
            if words and words[0].startswith("ray::"):
                actors.add(words[0].removeprefix("ray::").split(".")[0].split(":")[0])
            for connection in child.net_connections("inet"):
                address = connection.laddr.ip
                if connection.status == "LISTEN" and not address.removeprefix("::ffff:").startswith("127."):
                    listening.add(f"{address} {' '.join(words)[:80]}")


@contextlib.contextmanager
def watched(child: subprocess.Popen, root: psutil.Process) -> Iterator[tuple[set[str], set[str]]]:
    """The Ray actors below a process meanwhile, and what others could reach; what takes too long is killed."""
    actors: set[str] = set()
    listening: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        for _ in range(SECONDS // LOOK_SECONDS):
            try:
                look(root, actors, listening)
            except psutil.Error:
                return
            if ended.wait(LOOK_SECONDS):
                return
        child.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield actors, listening
    finally:
        ended.set()
        watcher.join()


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@dataclass
class Command:
    """`real-openrlhf train --recipe cpu` with these words, by this Python in this environment."""

    runs: Path
    python: tuple[str, ...]
    environment: Mapping[str, str]
    server: psutil.Process  # whose forks the run's processes are
    words: tuple[str, ...] = ()

    def __call__(self, name: str, *flags: str, code: int = 0) -> Run:
        words = ["train", "--recipe", "cpu", "--runs-dir", str(self.runs), "--run-name", name, *self.words, *flags]
        return self.run(self.runs / name, *words).ended(code)

    def run(self, folder: Path, *words: str) -> Run:
        """Any command of the package, with what it starts watched."""
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        child = subprocess.Popen([*self.python, *words], env=self.environment, **streams)
        run = Run(folder, 0, "", set())
        with watched(child, self.server) as (run.actors, run.listening):
            run.output, _ = child.communicate()
        run.code = child.returncode
        return run


# The command as a fork, whose children are forks too: importing the stack takes as long as ten steps.
IN_FORKS = "import os, sys; sys.executable = os.environ['REAL_WORKER_PYTHON']; from real_openrlhf.cli import main"
IN_FORKS += "; sys.exit(main())"


@pytest.fixture(scope="session")
def train(runs):
    """train(name, flags..., code=0) -> Run on one rank, on whose GPU the engine is too."""
    with forked_workers.started(os.environ) as (python, environment):
        parent = subprocess.check_output([python, "-c", "import os; print(os.getppid())"], env=environment)
        yield Command(runs, (python, "-c", IN_FORKS), environment, psutil.Process(int(parent)))


@pytest.fixture(scope="session")
def reward_calls(tmp_path_factory) -> Path:
    """Where failing_reward.py notes the prompts that it was asked about."""
    return tmp_path_factory.mktemp("reward") / "calls"


@pytest.fixture(scope="session")
def train_on_two(train, reward_calls):
    """As `train`, on two ranks with an engine apart, and with a reward that can make the verifier fail."""
    layout = ("--gpus", "2", "--no-train.colocate_all", "--vllm.num_engines", "1")
    faults = {"SAME_ANSWER_FAULTS": json.dumps(FAULTS), "FAILING_REWARD_CALLS": str(reward_calls)}
    words = (*layout, "--reward.remote_url", str(HERE / "failing_reward.py"))
    return replace(train, environment={**train.environment, **faults}, words=words)


@pytest.fixture(scope="session")
def compared(train, runs) -> Run:
    """REAL and GRPO with one seed, each trained and evaluated; its folder is the comparison's."""
    rows = (tiny_task.unpack() / "eval.jsonl").read_text().splitlines(keepends=True)
    (runs / "easy.jsonl").write_text("".join(rows[:6]))
    evaluation = ["--benchmarks", str(runs / "easy.jsonl"), "--eval-flags=--k 2 --max-new-tokens 14 --think optional"]
    words = ["compare", "--out", str(runs / "compared"), "--algos", "real", "grpo", "--seeds", "1", *evaluation]
    return train.run(runs / "compared", *words, *LEARNING).ended(0)


@pytest.fixture(scope="session")
def real(compared) -> Run:
    return replace(compared, folder=compared.folder / "runs" / "real-s1")


@pytest.fixture(scope="session")
def grpo(compared) -> Run:
    return replace(compared, folder=compared.folder / "runs" / "grpo-s1")
