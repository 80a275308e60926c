"""`verify_boxed_math_answer` of verifiers, in any thread. Ungraded is 0 there; the metric `ungraded` counts it."""

from same_answer import Verdict, verify
from same_answer.extract import boxed_answer


def verify_boxed_math_answer(response: str | None, answer: str, *, timeout_seconds: int = 5) -> float:
    verdict = _verdict(response, answer)
    return 0.0 if verdict.ungraded else verdict.score


def ungraded(response: str | None, answer: str) -> float:
    return float(_verdict(response, answer).ungraded)


def _verdict(response: str | None, answer: str) -> Verdict:
    return verify(response or "", boxed_answer(answer) or answer)
