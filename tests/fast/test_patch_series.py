"""The patch series itself: what each file says of itself, what it may contain, and that it fits the release exactly.

That `ppo` and `gspo` compute the same with it: tests/slow/test_patched_release.py. The tool that applies it, and git's
word for the result: test_patching.py.
"""

import ast
import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from real_openrlhf import patching

pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")  # in upstream's files

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
def test_each_patch_says_what_why_how_tested_and_until_when(patch):
    number = PATCHES.index(patch) + 1
    assert re.match(rf"\[PATCH 0?{number}/{len(PATCHES)}\] [a-z0-9 -]+: \S", field(patch, "Subject"))
    why = header(patch).split("\n\n", 1)[1].split("Unchanged:")[0]
    assert len(why.split()) >= 20
    for name in ("Unchanged", "Test", "Remove-When"):
        assert len(field(patch, name).split()) >= (1 if name == "Test" else 3)
    assert re.match(r"a pull request\b|none[;.] \w+", field(patch, "Upstream"))
    assert all(len(line) <= 79 for line in header(patch).splitlines() if "maintainers" not in line)


@by_file
def test_the_tests_that_it_names_exist(patch):
    named = re.findall(r"(?:tests|benchmarks)/[\w/]+\.py", field(patch, "Test"))
    assert named
    missing = [path for path in named if not (REPOSITORY / path).is_file()]
    assert missing == []


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


@by_file
def test_no_line_is_longer_than_upstreams(patch):
    assert [line for line in changed(patch, "+") if len(line) > 119] == []


def test_the_readme_says_what_each_patch_does_and_whether_it_could_go_upstream():
    table = (REPOSITORY / "patches/README.md").read_text()
    rows = re.findall(r"^\| (\d{4}) ([a-z0-9 ]+) \| \S.* \| (yes|no) \|$", table, re.MULTILINE)
    assert [number for number, _, _ in rows] == [patch.name[:4] for patch in PATCHES]
    for (_, area, upstream), patch in zip(rows, PATCHES, strict=True):
        assert f"] {area}: " in field(patch, "Subject")
        assert field(patch, "Upstream").startswith("a pull request") == (upstream == "yes")


@by_file
def test_nothing_personal_and_no_stray_whitespace(patch):
    assert not re.search(r"/(root|home|tmp|work)/", patch.read_text())
    assert [line for line in changed(patch, "+") if line != line.rstrip()] == []


def test_every_touched_file_is_recorded_and_no_other():
    touched = {diff.path for diff in SERIES.diffs()}
    assert touched == set(SERIES.fingerprints)
    assert all(state["before"] != state["after"] for state in SERIES.fingerprints.values())


# Against the release itself.

installed = importlib.util.find_spec("openrlhf")
with_openrlhf = pytest.mark.skipif(installed is None, reason="OpenRLHF is not installed")


@pytest.fixture
def release(tmp_path) -> Path:
    """A copy of the installed package with the series taken off: its hashes say that it is the release."""
    shutil.copytree(Path(installed.origin).parent, tmp_path / "openrlhf", ignore=shutil.ignore_patterns("__pycache__"))
    patching.revert(tmp_path)
    assert set(patching.file_states(tmp_path, SERIES).values()) == {patching.BEFORE}
    return tmp_path


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@with_openrlhf
def test_the_series_applies_to_the_release_and_reverts_byte_identical(release):
    before = contents(release)
    assert patching.apply(release) == len(SERIES.fingerprints)
    after = contents(release)
    assert {path for path in after if after[path] != before.get(path)} == set(SERIES.fingerprints)
    assert patching.apply(release) == 0
    assert patching.revert(release) == len(SERIES.fingerprints)
    assert contents(release) == before


# Where CUDA may still be named: on ways that are taken only where it is.
ONLY_ON_CUDA = {
    ("openrlhf/trainer/ray/utils.py", "get_physical_gpu_id"),  # for CUDA IPC
    ("openrlhf/trainer/ray/vllm_worker_wrap.py", "update_weight"),  # asks for the worker's device first
    ("openrlhf/trainer/ray/vllm_worker_wrap.py", "update_weight_cuda_ipc"),
    ("openrlhf/utils/loss_utils.py", "_optimizer_step_loss_norm"),  # asks torch.cuda.is_available() first
}


def names_cuda(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "cuda" and isinstance(node.value, ast.Name) and node.value.id == "torch"
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and bool(re.fullmatch(r"cuda(:.*)?", node.value))
    )


@with_openrlhf
def test_no_cuda_call_is_left_on_the_way_of_a_cpu_run(release):
    def found() -> set[tuple[str, str]]:
        return {
            (str(path.relative_to(release)), function.name)
            for path in release.rglob("*.py")
            for function in ast.walk(ast.parse(path.read_text()))
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            and any(names_cuda(node) for node in ast.walk(function))
        }

    before = found()
    patching.apply(release)
    assert found() == ONLY_ON_CUDA < before
    assert len(before) > 20


@with_openrlhf
def test_what_may_be_missing_is_imported_only_in_functions(release):
    """flash-attn without a CUDA toolkit, and this package where it was uninstalled before the series was taken off."""
    patching.apply(release)
    for path in release.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom | ast.Import):
                assert not re.search("flash_attn|real_openrlhf", ast.unparse(node)), path
