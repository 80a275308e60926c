"""patches/upstream/: each stands alone on the release, and its own test fails without it."""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from every import every
from small_world import REPOSITORY, copy_release

PATCHES = sorted((REPOSITORY / "patches/upstream").glob("*.patch"))
# OpenRLHF's environment has flash-attn, and this one has not: its functions of padding, by transformers.
FLASH_ATTN = """
from operator import getitem as index_first_axis
from einops import rearrange
from transformers.modeling_flash_attention_utils import _pad_input as pad_input, _unpad_input as unpad_input
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> Path:
    """The release, with the tests that its wheel has."""
    root = copy_release(tmp_path_factory.mktemp("release"))
    shutil.copytree(distribution("openrlhf").locate_file("tests"), root / "tests", dirs_exist_ok=True)
    return root


def apply(root: Path, patch: Path, *options: str) -> None:
    subprocess.run(["git", "apply", *options, str(patch)], cwd=root, check=True)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.stem)
def test_it_applies_and_has_words_and_a_test(release, patch, tmp_path):
    text = patch.read_text()
    subject = re.search(r"^Subject: \[PATCH\] (.*(?:\n .*)?)$", text, re.MULTILINE)[1]
    assert re.match(r"(fix|feat|refactor): ", subject)
    changed = re.findall(r"^diff --git a/(\S+)", text, re.MULTILINE)
    assert (
        any(path.startswith("tests/test_") for path in changed)
        and "real_openrlhf." not in text.partition("\ndiff ")[2]
    )
    assert f"`{patch.name}`" in (patch.parent / "README.md").read_text()
    apply(release, patch, "--check")


@every
@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.stem)
def test_its_test_fails_without_it(release, patch, tmp_path):
    root, lent = tmp_path / "clone", tmp_path / "lent"
    shutil.copytree(release, root)
    (lent / "flash_attn/utils").mkdir(parents=True)
    for name, body in {"__init__": "", "bert_padding": FLASH_ATTN, "utils/__init__": ""}.items():
        (lent / f"flash_attn/{name}.py").write_text(body)
    (lent / "flash_attn/utils/distributed.py").write_text("all_gather = None")
    files = re.findall(r"^diff --git a/(tests/test_\S+)", patch.read_text(), re.MULTILINE)
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{lent}", "DS_ACCELERATOR": "cpu"}

    def code() -> int:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
        return subprocess.run(command, cwd=root, env=environment).returncode

    apply(root, patch, "--include=tests/*")
    assert code() == 1
    apply(root, patch, "--exclude=tests/*")
    assert code() == 0
