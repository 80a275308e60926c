"""Runs of the real stack through the command that users type; one process tree at a time on two cores."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

COMMAND = [sys.executable, "-m", "real_openrlhf.cli", "train", "--recipe", "cpu"]


@dataclass
class Run:
    folder: Path
    code: int
    output: str
    actors: set[str]  # titles of the Ray actors seen while it ran

    def lines(self, phase: str) -> list[dict]:
        text = (self.folder / "metrics.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["phase"] == phase]

    def values(self, key: str) -> list[float]:
        return [line[key] for line in self.lines("train")]

    @property
    def log(self) -> str:
        return (self.folder / "train.log").read_text(errors="replace")


def ray_actors(process: psutil.Process) -> set[str]:
    """`ray::PolicyModelActor.fit` -> PolicyModelActor, of all processes below this one."""
    titles = set()
    for child in process.children(recursive=True):
        try:
            title = child.cmdline()[:1] or [""]
        except psutil.Error:
            continue
        if title[0].startswith("ray::"):
            titles.add(title[0].removeprefix("ray::").split(".")[0].split(":")[0])
    return titles


@pytest.fixture(scope="session")
def train(tmp_path_factory):
    """train(name, flags...) -> Run; expects success unless told otherwise."""
    runs = tmp_path_factory.mktemp("runs")

    def start(name: str, *flags: str, code: int | None = 0, environment: dict[str, str] | None = None) -> Run:
        command = [*COMMAND, "--runs-dir", str(runs), "--run-name", name, *flags]
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        actors: set[str] = set()
        ended = threading.Event()

        def watch() -> None:
            process = psutil.Process(child.pid)
            while not ended.wait(1):
                try:
                    actors.update(ray_actors(process))
                except psutil.Error:
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            output, _ = child.communicate(timeout=600)
        finally:
            if child.poll() is None:
                child.kill()
            ended.set()
            watcher.join()
        run = Run(runs / name, child.returncode, output, actors)
        if code is not None:
            tail = run.log[-6000:] if (run.folder / "train.log").exists() else ""
            assert run.code == code, f"{output}\n{tail}"
        return run

    return start


@pytest.fixture(scope="session")
def real(train):
    return train(
        "real", "--algo", "real", "--seed", "1", "--max-steps", "20", "--ckpt.save_steps", "10", "--eval.steps", "10"
    )
