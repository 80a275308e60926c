"""math-verify's names for evaluation harnesses: `from same_answer.math_verify import parse, verify`.

What is ungraded is False here, as in math-verify. To train take `same_answer.verify`, which tells them apart.
For unchanged code that imports math-verify, run this first:

    import sys, same_answer.math_verify

    names = ("math_verify", "math_verify.parser", "math_verify.grader", "math_verify.errors")
    sys.modules |= dict.fromkeys(names, same_answer.math_verify)

For lighteval 0.13.0, put a metric into your task's file:

    import numpy as np
    from lighteval.metrics.metrics_sample import SampleLevelComputation
    from lighteval.metrics.utils.metric_utils import SampleLevelMetric
    from lighteval.tasks.requests import SamplingMethod
    from same_answer.math_verify import parse, verify

    class SameAnswer(SampleLevelComputation):
        def compute(self, doc, model_response, **_):
            golds = [answer for gold in doc.get_golds() for answer in parse(gold)]
            return np.mean([verify(golds, parse(text)) for text in model_response.final_text])

    metric = SampleLevelMetric("same_answer", True, SamplingMethod.GENERATIVE, SameAnswer(), np.mean)
"""

import re

import same_answer
from same_answer.conventions import FORMULA
from same_answer.extract import after_thinking, boxed_answer

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?<!,)")


class LatexExtractionConfig:
    def __init__(self, *settings: object, **more: object):
        """Taken and not needed, as all settings here are."""


ExprExtractionConfig = StringExtractionConfig = LatexNormalizationConfig = LatexExtractionConfig


class TimeoutException(Exception):
    """Never raised."""


def parse(pred: str, *settings: object, **more: object) -> list[str]:
    """The last box, or without one the last formula, or in a sentence without one the last number."""
    text = after_thinking(pred, "optional") or ""
    formulas = ["".join(groups) for groups in FORMULA.findall(text)]
    numbers = _NUMBER.findall(text) if len(text.split()) > 3 else []
    answer = boxed_answer(text) or (formulas or numbers or [text])[-1].strip()
    return [answer] if answer else []


def verify(gold: list[str] | str, target: list[str] | str, *settings: object, **more: object) -> bool:
    golds, answers = ([one] if isinstance(one, str) else one for one in (gold, target))
    return any(same_answer.verify(f"\\boxed{{{answer}}}", list(golds)).score == 1.0 for answer in answers)
