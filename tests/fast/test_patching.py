"""The patch tool on the real release and series, held against git: git says what the files must be afterwards."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_world import copy_release

from real_openrlhf import OPENRLHF_VERSION, patching
from real_openrlhf.base.errors import UserError
from real_openrlhf.patching import changed, hunks

REPOSITORY = Path(patching.__file__).resolve().parents[1]
SERIES = patching.load_series()
TOUCHED = list(SERIES.fingerprints)


def write(root: Path, files: dict[str, str]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content.encode())


def tree(root: Path) -> dict[str, bytes]:
    """Every file and folder of the package, leftovers of the tool included; folders have no content."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"" for path in root.rglob("*")}


def package(root: Path) -> dict[str, bytes]:
    return {path: content for path, content in tree(root).items() if path.startswith("openrlhf/")}


def git(folder: Path, *words: str) -> bytes:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.autocrlf=false"]
    result = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True)
    assert result.returncode in (0, 1), result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A copy of the installed OpenRLHF, taken back to the release."""
    return copy_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def patched(release, tmp_path_factory):
    """The package that git has after the series."""
    root = shutil.copytree(release, tmp_path_factory.mktemp("git") / "openrlhf")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "release")
    git(root, "am", "-q", *map(str, SERIES.patches))
    assert git(root, "status", "--porcelain") == b""
    return package(root)


@pytest.fixture
def make_site(release, tmp_path):
    """make_site(name) -> a fresh site-packages with the release."""

    def make(name: str, version: str = OPENRLHF_VERSION) -> Path:
        root = shutil.copytree(release, tmp_path / name)
        about = f"Metadata-Version: 2.1\nName: openrlhf\nVersion: {version}\n"
        write(root / f"openrlhf-{version}.dist-info", {"METADATA": about})
        return root

    return make


@pytest.fixture
def site(make_site):
    return make_site("site")


def start(*words: str, paths: tuple[Path, ...] = (REPOSITORY,), cwd: Path = REPOSITORY) -> subprocess.Popen:
    """Python with these packages; -S hides site-packages, so that only the standard library is there besides."""
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-S", *words], env=environment, cwd=cwd, **pipes)


def finish(process: subprocess.Popen) -> subprocess.CompletedProcess:
    out, err = process.communicate(timeout=1200)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


# The applier


lines = st.lists(st.text("ab\r", max_size=3), max_size=8).map(lambda some: "".join(f"{line}\n" for line in some))


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(old=lines, new=lines, context=st.integers(0, 3))
def test_the_applier_agrees_with_git_in_both_directions(old, new, context):
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), {"a/openrlhf/x.py": old, "b/openrlhf/x.py": new})
        diff = git(Path(folder), "diff", "--no-index", "--no-prefix", "--text", f"-U{context}", "a", "b")
    steps = [*hunks(diff)]
    assert {hunk.path for hunk in steps} <= {"openrlhf/x.py"} and bool(steps) == (old != new)
    assert changed(old.encode(), steps, patching.AFTER) == new.encode()
    assert changed(new.encode(), steps, patching.BEFORE) == old.encode()


# Applying and reverting


def test_apply_gives_what_git_gives_and_revert_is_byte_identical(site, patched):
    before = tree(site)
    assert patching.revert(site) == 0 and patching.status(site) == 1
    assert patching.apply(site) == len(TOUCHED)
    assert package(site) == patched
    assert patching.apply(site) == 0 and patching.status(site) == 0
    assert patching.revert(site) == len(TOUCHED)
    assert tree(site) == before


@pytest.mark.parametrize("harm, said", [(lambda file: file.write_text("mine\n"), ""), (Path.unlink, " (missing)")])
def test_an_edited_or_missing_file_is_named_and_nothing_is_touched(site, capsys, harm, said):
    harm(site / TOUCHED[1])
    before = tree(site)
    for move in (patching.apply, patching.revert):
        with pytest.raises(UserError, match=rf"{TOUCHED[1]}\. Nothing was written\. Reinstall"):
            move(site)
    assert patching.status(site) == 2
    assert f"{TOUCHED[1]}{said};" in capsys.readouterr().out
    assert tree(site) == before


def test_another_version_is_refused(site, make_site):
    other = make_site("other", version="0.12.0")
    for move in (patching.apply, patching.revert, patching.status):
        with pytest.raises(UserError, match=rf"has openrlhf 0\.12\.0, the patches are for {OPENRLHF_VERSION}\. "):
            move(other)
    assert package(other) == package(site)


# Failures half-way


@pytest.mark.parametrize("call", [0, 1, len(TOUCHED) - 1])
def test_what_fails_between_two_files_is_finished_by_the_next_call(site, patched, monkeypatch, capsys, call):
    before, replace, calls = package(site), os.replace, []

    def failing(source, destination):
        calls.append(destination)
        if len(calls) == call + 1:
            raise OSError(28, "No space left on device")
        replace(source, destination)

    for move, then in ((patching.apply, patched), (patching.revert, before)):
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing)  # a disk that fails in between
            with pytest.raises(UserError, match="No space left.*run this again"):
                move(site)
        assert len(calls) == call + 1 and patching.status(site) == (move is patching.apply or call > 0)
        assert ("partly applied" in capsys.readouterr().out) == (call > 0)
        move(site)
        assert package(site) == then
        calls.clear()


def test_patches_that_do_not_give_the_recorded_files_are_refused(site, tmp_path, monkeypatch):
    patch = shutil.copytree(SERIES.folder, tmp_path / "patches" / SERIES.name) / SERIES.patches[-1].name
    patch.write_text(re.sub(r"\n\+(?!\+)", "\n+#", patch.read_text(), count=1))
    monkeypatch.setattr(patching, "PATCH_FOLDERS", (tmp_path / "nowhere", tmp_path / "patches"))
    before = tree(site)
    with pytest.raises(UserError, match=r"openrlhf/\S+ gives another file than files.json says"):
        patching.apply(site)
    assert tree(site) == before


# Which OpenRLHF


def test_without_root_the_installed_distribution_is_found_without_an_import(site, patched, monkeypatch):
    write(site, {"openrlhf/__init__.py": "raise ImportError('imported')\n"})
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "openrlhf", raising=False)
    patching.apply()
    assert package(site) == {**patched, "openrlhf/__init__.py": b"raise ImportError('imported')\n"}


def test_no_openrlhf_at_all(tmp_path):
    command = "-m", "real_openrlhf.patching"
    nothing = finish(start(*command, "status"))
    assert nothing.returncode == 2 and "openrlhf is not installed for" in nothing.stderr
    wrong = finish(start(*command, "apply", "--root", str(tmp_path)))
    assert wrong.returncode == 2 and "contains no folder openrlhf" in wrong.stderr
    assert nothing.stderr.count("\n") == wrong.stderr.count("\n") == 1


# The check inside workers


def check_in_worker(*packages: Path) -> subprocess.CompletedProcess:
    program = "from real_openrlhf.patching import assert_applied; assert_applied()"
    return finish(start("-c", program, paths=(*packages, REPOSITORY)))


def test_a_worker_checks_the_package_that_it_imports(site, make_site):
    """A folder on PYTHONPATH with a stock openrlhf wins over the patched one that is installed."""
    patching.apply(site)
    assert check_in_worker(site).returncode == 0
    stock = make_site("working dir")
    shadowed = check_in_worker(stock, site)
    assert shadowed.returncode == 1
    assert f"{stock}/openrlhf on node {os.uname().nodename}" in shadowed.stderr
    assert f"-m real_openrlhf.patching apply --root '{stock}'`" in shadowed.stderr
    assert "openrlhf is not installed for" in check_in_worker().stderr


def test_files_json_is_the_one_that_its_script_writes(release, tmp_path):
    shutil.copytree(REPOSITORY / "real_openrlhf", tmp_path / "real_openrlhf", ignore=shutil.ignore_patterns("*.pyc"))
    series = shutil.copytree(SERIES.folder, tmp_path / "patches" / SERIES.name)
    (series / "files.json").unlink()
    script = str(REPOSITORY / "requirements/record_patches.py")
    done = finish(start(script, str(release), paths=(tmp_path,), cwd=tmp_path))
    assert done.returncode == 0, done.stderr
    assert (series / "files.json").read_text() == (SERIES.folder / "files.json").read_text()


# What a patch may contain. `ppo` and `gspo` with it: tests/slow/test_patched_release.py

by_file = pytest.mark.parametrize("patch", SERIES.patches, ids=lambda patch: patch.name[:4])


def lines_of(patch: Path, sign: str) -> list[str]:
    """The added (+) or removed (-) lines, without the sign."""
    diff = patch.read_text().split("\n---\n", 1)[1]
    return [line[1:] for line in diff.splitlines() if line.startswith(sign) and not line.startswith(sign * 3)]


@by_file
def test_the_tests_that_a_patch_names_are_there(patch):
    named = re.findall(r"(?:tests|benchmarks)/[\w/]+\.py", patch.read_text().split("\n---\n")[0])
    assert named and all((REPOSITORY / path).is_file() for path in named), named


@by_file
def test_no_algorithm_is_in_the_patches(patch):
    added = lines_of(patch, "+")
    assert len(added) <= 100  # a seam is small
    ours = [line for line in added if re.search(r"(from|import) real_openrlhf", line)]
    assert all(re.search(r"from real_openrlhf\.(hooks|base)", line) for line in ours), ours
    maths = re.compile(
        r"\.(exp|log|sigmoid|softmax|logsumexp|sum|mean|std|clamp|backward|grad)\(|torch\.where|loss\s*[-+*/]?="
    )
    assert [line for line in added if maths.search(line)] == []


@by_file
def test_what_a_patch_imports_of_ours_is_there(patch):
    for module, names in re.findall(r"from (real_openrlhf[\w.]*) import ([\w, ]+)", "\n".join(lines_of(patch, "+"))):
        imported = vars(importlib.import_module(module)).keys() if module.count(".") > 1 else {"arguments"}
        assert {name.split(" as ")[0].strip() for name in names.split(",")} <= imported, module


def test_the_patches_stay_small():
    assert sum(len(lines_of(patch, sign)) for patch in SERIES.patches for sign in "+-") <= 270
