"""What reading or comparing one answer may take: so many calls, nested so deep, whatever the text is.

A count of calls depends on the answer alone. Seconds would depend on the machine, Python's recursion limit on the
caller's stack.
"""

import threading
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

DEEPEST = 60  # atoms inside atoms of an expression: 24 brackets, and the signs and functions between them
F = TypeVar("F", bound=Callable)


class Exhausted(Exception):
    """The text needs more calls or a deeper stack than any answer."""


class Budget(threading.local):
    """A number of calls for the outermost one and all that it leads to, nested at most `deepest`; for each thread."""

    def __init__(self, calls: int, deepest: int):
        self.calls, self.deepest, self.left, self.depth = calls, deepest, calls, 0

    def of(self, function: F) -> F:
        """The function, each of whose calls counts."""

        @wraps(function)
        def counted(*args: object) -> object:
            if self.depth == 0:
                self.left = self.calls
            self.left -= 1
            if self.left < 0 or self.depth >= self.deepest:
                raise Exhausted
            self.depth += 1
            try:
                return function(*args)
            finally:
                self.depth -= 1

        return counted  # type: ignore[return-value]


# 4,481 pairs of answers take at most 22 calls to read one and 8 to compare two, nested 8 deep.
READING = Budget(calls=3_000, deepest=40)
COMPARING = Budget(calls=3_000, deepest=40)
