"""The verifier on random answers: never an exception, never late, right where the truth is known, symmetric."""

import importlib.util
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

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
