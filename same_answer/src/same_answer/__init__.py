"""Whether the answer of a response to a question of mathematics equals the gold: correct, incorrect or ungraded."""

import sys

if sys.platform == "win32":
    raise ImportError("same_answer runs on Linux: Windows has no limits on a process's memory and CPU time. Use WSL.")

from same_answer.verdict import Verdict, equal, verify

__all__ = ["Verdict", "equal", "verify"]
__version__ = "0.2.0"
