"""Errors that a user can act on: one line that says what is wrong and what to do."""


class UserError(Exception):
    """Printed by the command line, a line for each problem, which then exits with 2; never a traceback."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = list(problems)

    def __str__(self) -> str:
        return "\n".join(self.problems)
