"""The form of every check before a run: a function that yields what it finds, and `Findings`, which sorts that.

A check yields a text for each problem, `Note(text)` for what stops nothing, `Line(text)` for the page of a dry run.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from real_openrlhf.base.errors import UserError


class Note(str):
    """Always printed; the run goes on."""


class Line(str):
    """Printed in a dry run only."""


@dataclass
class Findings:
    """What all checks found.

    `elsewhere`: this machine lacks something that the run needs, so a dry run must be for another machine.
    """

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    elsewhere: bool = False

    def add(self, check: Iterable[str], of_machine: bool = False) -> None:
        """Sort what a check finds; it may also raise. `of_machine`: its problems are notes for another machine."""
        wrong = self.notes if of_machine and self.elsewhere else self.problems
        try:
            for said in check:
                (self.notes if isinstance(said, Note) else self.lines if isinstance(said, Line) else wrong).append(
                    said
                )
        except UserError as error:
            wrong += error.problems

    def refuse(self) -> None:
        """Raise if there are problems, before anything else is printed."""
        if self.problems:
            raise UserError(*self.problems)
