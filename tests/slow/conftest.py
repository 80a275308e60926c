"""Two gloo ranks and one, shared by all tests of real ZeRO engines."""

import pytest


@pytest.fixture(scope="session")
def two_ranks(start_ranks):
    return start_ranks(2, "zero_jobs")


@pytest.fixture(scope="session")
def one_rank(start_ranks):
    return start_ranks(1, "zero_jobs")


@pytest.fixture(scope="session")
def python(forked) -> str:
    """Used like Python, with the stack imported."""
    return forked[0]
