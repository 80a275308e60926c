"""One verdict wherever a trainer grades: its main thread, threads, event loop, children. tests/slow has Ray."""

import places
import pytest


@pytest.fixture(scope="module")
def expected() -> list:
    return places.verdicts()


def test_the_inputs_have_verdicts_of_all_kinds(expected):
    assert {"exact", "algebra", "different", "too_long", "too_deep", "gold_unparsed", "no_gold"} <= {
        reason for _, reason in expected
    }


@pytest.mark.parametrize("place", places.PLACES)
def test_the_verdicts_are_those_of_the_main_thread(expected, place):
    assert places.PLACES[place]() == expected
