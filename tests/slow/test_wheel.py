"""A wheel of the package carries the patches, and its patch tool finds them there."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest

from real_openrlhf import patching

REPOSITORY = Path(patching.__file__).resolve().parents[1]


def test_a_wheel_patches_without_the_checkout(tmp_path):
    try:
        installed = distribution("openrlhf")
    except PackageNotFoundError:
        pytest.skip("openrlhf is not installed: bash examples/scripts/setup_env.sh cpu")
    source, site = tmp_path / "source", tmp_path / "site"
    for name in ("real_openrlhf", "patches"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, source]
    subprocess.run(words, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    packed = sorted(path.name for path in (site / "real_openrlhf/patches").rglob("*") if path.is_file())
    series = patching.load_series()
    assert packed == sorted(["README.md", "files.json", *(patch.name for patch in series.patches)])

    shutil.copytree(installed.locate_file("openrlhf"), site / "openrlhf", ignore=shutil.ignore_patterns("__pycache__"))
    patching.revert(site)
    apply = [sys.executable, "-S", "-m", "real_openrlhf.patching", "apply", "--root", "."]
    result = subprocess.run(
        apply, cwd=site, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(site)}
    )
    assert result.returncode == 0, result.stderr
    assert set(patching.file_states(site, series).values()) == {patching.AFTER}
