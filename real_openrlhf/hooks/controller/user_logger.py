"""The user's own logger, --logger.file: log(step, numbers), and if it likes start(folder) and close()."""

from collections.abc import Iterator, Mapping

from real_openrlhf.base.user_files import load, raised


def problems(path: str) -> Iterator[str]:
    try:
        if not callable(load(f"{path}:log")):
            yield f"--logger.file {path}: it defines no log(step, numbers). See examples/loggers/trackio_logger.py"
    except ValueError as error:
        yield f"--logger.file {path}: {error}"


class UserLogger:
    """Calls the file until a call fails: a run does not end because a tracker does not answer."""

    def __init__(self, path: str | None, folder: str) -> None:
        self.path, self.folder, self.started = path, folder, False

    def log(self, phase: str, step: int, numbers: Mapping[str, float]) -> str | None:
        """What failed, or None."""
        failure = None if self.started or not self.path else self._call("start", self.folder)
        self.started = True
        return failure or self._call("log", step, {f"{phase}/{name}": value for name, value in numbers.items()})

    def close(self) -> None:
        if self.started:
            self._call("close")

    def _call(self, name: str, *arguments: object) -> str | None:
        if self.path is None:
            return None
        try:
            function = load(f"{self.path}:{name}")
            if callable(function):
                function(*arguments)
        except (Exception, SystemExit) as error:
            path, self.path = self.path, None
            return f"--logger.file {path}: {name}() raised {raised(error)[:300]}. It is not called again in this run"
        return None
