"""Whether the answer of a response to a question of mathematics equals the gold: right, wrong, or no verdict."""

from same_answer.verdict import Verdict, verify

__all__ = ["Verdict", "verify"]
