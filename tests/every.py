"""What `bash tests/run.sh every` runs besides: more cells of grids whose kinds of cells are tried without it too."""

import os
from collections.abc import Collection
from typing import Any

import pytest

EVERY = "REAL_TEST_EVERY" in os.environ
every = pytest.mark.skipif(not EVERY, reason="a further cell of a grid: bash tests/run.sh every")


def cells(of: Collection[tuple], always: Collection[tuple]) -> list[Any]:
    """A grid for `parametrize`, of which some cells are always run."""
    assert {*map(repr, always)} <= {*map(repr, of)}
    return [cell if repr(cell) in map(repr, always) else pytest.param(*cell, marks=every) for cell in of]
