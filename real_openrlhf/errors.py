"""Errors that a user can act on: one line that says what is wrong and what to do."""


class UserError(Exception):
    """Printed as one line by the command line, which then exits with 2; never a traceback."""
