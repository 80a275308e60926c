"""The verifier on random answers: never an exception, never late, right where the truth is known, symmetric."""

import importlib
import importlib.util
import itertools
import pkgutil
import re
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from real_openrlhf.rewards import verifier
from real_openrlhf.rewards.verifier.verdict import verify

SPEC = importlib.util.spec_from_file_location(
    "verifier_properties", Path(__file__).parents[1] / "data" / "verifier_properties.py"
)
properties = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(properties)


@pytest.fixture(scope="module", autouse=True)
def workers():
    """Up before anything is timed."""
    assert verify("\\boxed{\\sqrt{4}}", "2").reason == "algebra"


@pytest.mark.parametrize("holds", properties.PROPERTIES, ids=lambda holds: holds.__name__)
def test_property(holds):
    check = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])(
        given(*properties.PROPERTIES[holds])(holds)
    )
    check()


REPEATED = (" ", ",", ", ", "a", "A", "1", "(", ")", "{", "}", "\\", "\\ldots", " \\ldots", "\\cdot ", "\\pm",
            "\\angle ",
            "\\text{a}", "\\text{ and }", "{a}", "_{1}", "^{2}", "a_{1}", "AB", "1,000", "k\\in\\mathbb{Z}",
            "x=", "\\dot{1}",
            "\\text{a}\\cdot ", ", (", "'", "&", "\n")  # fmt: skip


def test_no_pattern_backtracks_for_ever():
    """A search holds the interpreter lock until it ends, in the process that serves rollouts."""

    def too_long(signum, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_long)
    modules = (
        importlib.import_module(f"{verifier.__name__}.{found.name}")
        for found in pkgutil.iter_modules(verifier.__path__)
    )
    patterns = {item for module in modules for item in vars(module).values() if isinstance(item, re.Pattern)}
    slow = []
    try:
        for pattern, piece, start in itertools.product(patterns, REPEATED, ("", "1", "x", "\\text{")):
            signal.setitimer(signal.ITIMER_REAL, 2)
            try:
                pattern.search(start + piece * (400 // len(piece)) + '"')
            except TimeoutError:
                slow.append((pattern.pattern, piece))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(patterns) > 50 and slow == []
