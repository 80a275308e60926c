"""Errors that a user can act on, each in one line that says what is wrong and what to do."""

import errno
import sys
from collections.abc import Callable


class UserError(Exception):
    """One problem or several; the command line prints a line for each and exits with 2, without a traceback."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)


def exit_code(command: str, run: Callable[[], int]) -> int:
    """Of a subcommand; what the user can do something about is told, not raised."""
    try:
        return run()
    except UserError as error:
        for problem in error.problems:
            print(f"real-openrlhf {command}: error: {problem}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(f"real-openrlhf {command}: error: {error}. Free some space and try again.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def first_line(error: BaseException) -> str:
    """What somebody else's error says, where the cause comes first."""
    return _lines(error)[0].rstrip(".")


def last_line(error: BaseException) -> str:
    """The same, where the cause comes last: behind another machine's traceback."""
    return _lines(error)[-1]


def _lines(error: BaseException) -> list[str]:
    return str(error).strip().splitlines() or [type(error).__name__]
