"""Trains and evaluates one run after another: on CPU all in one session (shared_ray.py), else each by itself."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from real_openrlhf.base.errors import UserError, exit_code
from real_openrlhf.comparison.evaluate import evaluate
from real_openrlhf.comparison.run_list import Entry, RunList
from real_openrlhf.runs import run_folder
from real_openrlhf.training import command as train_command
from real_openrlhf.training.launch import shared_ray
from real_openrlhf.training.launch.place import Place
from real_openrlhf.training.launch.progress import end_unwatched


class Trainer(contextlib.ExitStack):
    """A failed training ends the session, and the next one opens another."""

    def __init__(self, runs: RunList, todo: Iterable[Entry]) -> None:
        super().__init__()
        self.runs = runs
        self.server: subprocess.Popen | None = None
        self.environment: Mapping[str, str] | None = None
        first = runs.request(runs.entries[0])
        if first.recipe.on_cpu:
            alike = {(entry.algo, entry.flags): runs.words(entry) for entry in todo}
            self.environment = environment_of(*alike.values())

    def one(self, entry: Entry) -> tuple[int, str | None]:
        """To its end: (exit code, why it failed)."""
        path = self.runs.path(entry)
        if unseen := end_unwatched(path):
            print(unseen)
        if not self.runs.trained(entry):
            args = train_command.parse(self.runs.words(entry))
            code = exit_code("train", lambda: train_command.run(args, self._session()))
            if code:
                self.close()  # a failed training ends its session, which takes a moment
                self.server = None
                told = run_folder.read(path)["reason"] if (path / "run.json").exists() else None
                return code, told or "it did not start: its own output says why"
        return evaluate(path, self.runs.evaluation) if self.runs.evaluation is not None else (0, None)

    def _session(self) -> Path | None:
        if self.environment is None:
            return None
        if self.server is None or self.server.poll() is not None:
            self.close()
            # a socket's path has at most 107 letters
            self.socket = Path(self.enter_context(tempfile.TemporaryDirectory())) / "session"
            log = self.runs.out.resolve() / "session.log"
            self.server = self.enter_context(shared_ray.opened(self.socket, self.environment, log))
        return self.socket


def environment_of(*runs: Sequence[str]) -> dict[str, str]:
    """The environment of a session in which each run can train: a reference model may need its own GPUs."""
    requests = [train_command.request_of(words) for words in runs]
    place = Place.of(requests[0].recipe, None)
    if place.job_address:
        raise UserError("compare trains from this machine: unset RAY_ADDRESS, or set it to HEAD:6379")
    return place.environment(max((request.plan() for request in requests), key=lambda plan: plan.gpus))
