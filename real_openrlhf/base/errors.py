"""Errors that a command tells in one line each, and the line of a foreign error that names its cause."""


class NonFiniteError(RuntimeError):
    """A loss, score or gradient was nan or infinite; the model keeps the weights of the update before."""

    @classmethod
    def of(cls, what: str, optimizer_step: int) -> "NonFiniteError":
        return cls(
            f"{what} is nan or infinite in optimizer step {optimizer_step}: stopped before the weights changed. "
            "Resume with --run-name and a lower --actor.adam.lr, and look at the last lines of metrics.jsonl for what "
            "grew."
        )


class UserError(Exception):
    """One problem or several; the command line prints a line for each and exits with 2, without a traceback."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


def first_line(error: BaseException) -> str:
    """The first line of a foreign error, for libraries that name the cause first."""
    return _lines(error)[0].rstrip(".")


def last_line(error: BaseException) -> str:
    """The last line of a foreign error, for errors that name the cause after another machine's traceback."""
    return _lines(error)[-1]


def _lines(error: BaseException) -> list[str]:
    return str(error).strip().splitlines() or [type(error).__name__]
