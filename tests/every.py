"""What `bash tests/run.sh every` runs besides: more cells of grids whose kinds of cells are tried without it too."""

import os

import pytest

EVERY = "REAL_TEST_EVERY" in os.environ
every = pytest.mark.skipif(not EVERY, reason="a further cell of a grid: bash tests/run.sh every")
