"""The form of every check before a run: a function that yields what it finds, and `Findings`, which sorts that.

A check yields a text for each problem, and `Note(text)` for what stops nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from real_openrlhf.base.errors import UserError
from real_openrlhf.forecast.duration import Bill


class Note(str):
    """Always printed; the run goes on. `unchecked` names what could not be checked, `bill` is what the run costs."""

    unchecked: str
    bill: Bill | None

    def __new__(cls, text: object, unchecked: str = "", bill: Bill | None = None) -> "Note":
        note = super().__new__(cls, text)
        note.unchecked, note.bill = unchecked, bill
        return note


@dataclass
class Findings:
    where: str = "This machine"
    elsewhere: str = ""  # what this machine lacks for the run, so that a dry run must be for another machine
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, check: Iterable[str]) -> None:
        """Sort what a check finds; it may also raise."""
        try:
            for text in check:
                (self.notes if isinstance(text, Note) else self.problems).append(text)
        except UserError as error:
            self.problems += error.problems

    def refuse(self) -> None:
        """Raise if there are problems, before anything else is printed."""
        if self.problems:
            raise UserError(*self.problems)

    @property
    def conclusion(self) -> str:
        """The last line of a dry run in which nothing is wrong."""
        unchecked = dict.fromkeys(note.unchecked for note in self.notes if isinstance(note, Note) and note.unchecked)
        checked = "Flags OK." if unchecked else "Flags, data and model OK."
        rest = f" Not checked: {', '.join(unchecked)}." if unchecked else ""
        fits = not any(". It may not fit: " in note for note in self.notes)
        runs = "can run it" if fits else "may lack the memory to run it"
        there = "" if fits else "; the GPUs that it is for may lack the memory"
        here = f"cannot run it: {self.elsewhere}{there}" if self.elsewhere else runs
        return f"{checked}{rest} {self.where} {here}."
