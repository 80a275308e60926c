"""Copies of the installed OpenRLHF, taken back to the release."""

import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from real_openrlhf import patching


def copy_release(root: Path) -> Path:
    try:
        installed = distribution("openrlhf").locate_file("openrlhf")
    except PackageNotFoundError:
        pytest.skip("openrlhf is not installed: bash examples/scripts/setup_env.sh cpu")
    shutil.copytree(installed, root / "openrlhf", ignore=shutil.ignore_patterns("__pycache__"))
    patching.revert(root)
    return root
