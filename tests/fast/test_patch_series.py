"""The patch series itself: what each file says of itself, and what it may contain.

That `ppo` and `gspo` compute the same with it: tests/slow/test_patched_release.py. The tool that applies it, and git's
word for the result: test_patching.py.
"""

import re
from pathlib import Path

import pytest

from real_openrlhf import patching

SERIES = patching.load_series()
PATCHES = SERIES.patches
REPOSITORY = Path(__file__).parents[2]

by_file = pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name[:4])


def header(patch: Path) -> str:
    return patch.read_text().split("\n---\n")[0]


def changed(patch: Path, sign: str) -> list[str]:
    """The added (+) or removed (-) lines, without the sign."""
    diff = patch.read_text().split("\n---\n", 1)[1]
    return [line[1:] for line in diff.splitlines() if line.startswith(sign) and not line.startswith(sign * 3)]


def field(patch: Path, name: str) -> str:
    """A field of the header, its continued lines included."""
    found = re.search(rf"^{name}: (.*(?:\n(?![A-Z][\w-]+: ).+)*)", header(patch), re.MULTILINE)
    assert found, f"{patch.name} has no {name}:"
    return " ".join(found[1].split())


@by_file
def test_each_patch_says_what_is_unchanged_what_tests_it_and_when_it_can_go(patch):
    for name in ("Unchanged", "Upstream", "Remove-When"):
        assert field(patch, name)
    named = re.findall(r"(?:tests|benchmarks)/[\w/]+\.py", field(patch, "Test"))
    assert named and all((REPOSITORY / path).is_file() for path in named), named


# What a patch may import from this package: the seams, each filled in one place.
SEAMS = {
    "arguments",
    "logit_free_head",
    "lora_weights",
    "nonfinite_guard",
    "requests",
    "run_controller",
    "run_strategy",
    "trainer_classes",
    "weight_buckets",
}


@by_file
def test_no_algorithm_is_in_the_patches(patch):
    added = changed(patch, "+")
    assert len(added) <= 100  # a seam is small
    modules = {
        module or name
        for line in added
        for module, name in re.findall(r"from real_openrlhf\.hooks(?:\.(\w+))? import (\w+)", line)
    }
    assert modules <= SEAMS
    assert not any(re.search(r"import real_openrlhf", line) for line in added)
    maths = re.compile(
        r"\.(exp|log|sigmoid|softmax|logsumexp|sum|mean|std|clamp|backward|grad)\(|torch\.where|loss\s*[-+*/]?="
    )
    assert [line for line in added if maths.search(line)] == []


def test_the_whole_series_stays_short():
    assert sum(len(changed(patch, sign)) for patch in PATCHES for sign in "+-") <= 280


def test_the_readme_says_what_each_patch_does_and_whether_it_could_go_upstream():
    table = (REPOSITORY / "patches/README.md").read_text()
    rows = re.findall(r"^\| (\d{4}) ([a-z0-9 ]+) \| \S.* \| (yes|no) \|$", table, re.MULTILINE)
    assert [number for number, _, _ in rows] == [patch.name[:4] for patch in PATCHES]
    for (_, area, upstream), patch in zip(rows, PATCHES, strict=True):
        assert f"] {area}: " in field(patch, "Subject")
        assert field(patch, "Upstream").startswith("a pull request") == (upstream == "yes")
