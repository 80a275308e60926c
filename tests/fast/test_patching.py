"""The patch tool, held against git: git makes the patches and says what the files must be afterwards."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from released import copy_release

from real_openrlhf import OPENRLHF_VERSION, patching
from real_openrlhf.errors import UserError
from real_openrlhf.patch_tool import series as patch_series
from real_openrlhf.patch_tool.unified_diff import DoesNotFit, apply_diff, parse_patch

REPOSITORY = Path(patching.__file__).resolve().parents[1]
SERIES = f"openrlhf-{OPENRLHF_VERSION}"
NUMBERED = "".join(f"line {number}\n" for number in range(1, 41))
RELEASE = {
    "openrlhf/__init__.py": "",
    "openrlhf/loss.py": NUMBERED,
    "openrlhf/other.py": "untouched\n",
    "openrlhf/trainer/actor.py": NUMBERED + "last line without an end",
    "openrlhf/trainer/short.py": "only\nhere\n",
}
# One entry per patch: several hunks, one file in two patches, a file that becomes empty, both kinds of last line.
COMMITS = [
    {
        "openrlhf/loss.py": NUMBERED.replace("line 3\n", "line three\n").replace("line 30\n", "line 30\nmore\n"),
        "openrlhf/trainer/actor.py": "first\n" + NUMBERED + "last line with an end\n",
    },
    {
        "openrlhf/loss.py": "import this\n" + NUMBERED.replace("line 3\n", "line three!\n").replace("line 40\n", ""),
        "openrlhf/trainer/short.py": "",
    },
]


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


def make_site(root: Path, version: str = OPENRLHF_VERSION, direct_url: dict | None = None) -> Path:
    write(root, RELEASE)
    info = root / f"openrlhf-{version}.dist-info"
    write(
        info,
        {
            "METADATA": f"Metadata-Version: 2.1\nName: openrlhf\nVersion: {version}\n",
            "direct_url.json": json.dumps(direct_url or {}),
        },
    )
    return root


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A copy of the tool beside a series that git made, and the package that git has after the series."""
    base = tmp_path_factory.mktemp("world")
    upstream = base / "upstream"
    write(upstream, RELEASE)
    git(upstream, "init", "-q")
    git(upstream, "add", "-A")
    git(upstream, "commit", "-qm", "release")
    git(upstream, "tag", "release")
    for number, changes in enumerate(COMMITS):
        write(upstream, changes)
        git(upstream, "add", "-A")
        git(upstream, "commit", "-qm", f"change {number}\n\n@@ -1,1 +1,1 @@ in a header is no hunk")
    git(upstream, "format-patch", "-q", "--zero-commit", "--full-index", "-o", f"../patches/{SERIES}", "release")
    ours = REPOSITORY / "real_openrlhf"
    names = ["__init__.py", "cli.py", "errors.py", "patching.py", "terminal.py"]
    for path in [*(ours / name for name in names), *ours.glob("patch_tool/*.py")]:
        write(base, {str(path.relative_to(REPOSITORY)): path.read_text()})
    record(make_site(base / "pristine"), base)
    return base, package(upstream)


@pytest.fixture
def site(world, tmp_path, monkeypatch):
    """A fresh site-packages with the release, and the imported tool pointed at the series of `world`."""
    monkeypatch.setattr(patch_series, "PATCH_FOLDERS", (world[0] / "nowhere", world[0] / "patches"))
    return make_site(tmp_path / "site")


@pytest.fixture
def patched(world):
    return world[1]


def start(base: Path, *words: str, cwd: Path | None = None, shadow: str = "") -> subprocess.Popen:
    """Python with the tool of `base`; -S hides site-packages, so that only the standard library can be imported."""
    environment = {**os.environ, "PYTHONPATH": f"{shadow}:{base}", "PYTHONDONTWRITEBYTECODE": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-S", *words], env=environment, cwd=cwd or base, **pipes)


def finish(process: subprocess.Popen) -> subprocess.CompletedProcess:
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def tool(base: Path, *words, cwd: Path | None = None) -> subprocess.CompletedProcess:
    return finish(start(base, "-m", "real_openrlhf.patching", *map(str, words), cwd=cwd))


def record(release: Path, base: Path) -> None:
    done = finish(start(base, str(REPOSITORY / "requirements/record_patches.py"), str(release)))
    assert done.returncode == 0, done.stderr


# The applier


@settings(max_examples=40, deadline=None)
@given(old=st.text("ab\n\r", max_size=30), new=st.text("ab\n\r", max_size=30), context=st.integers(0, 3))
def test_the_applier_agrees_with_git_in_both_directions(old, new, context):
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), {"a/openrlhf/x.py": old, "b/openrlhf/x.py": new})
        diff = git(Path(folder), "diff", "--no-index", "--no-prefix", "--text", f"-U{context}", "a", "b")
    if old == new:
        assert diff == b""
        return
    (parsed,) = parse_patch(diff, "one.patch")
    assert apply_diff(old.encode(), parsed) == new.encode()
    assert apply_diff(new.encode(), parsed.reverse()) == old.encode()


def test_a_diff_never_fits_at_another_place():
    hunk = b"diff --git a/openrlhf/x b/openrlhf/x\n@@ -2 +2 @@\n-b\n+B\n"
    (diff,) = parse_patch(hunk, "one.patch")
    assert apply_diff(b"a\nb\n", diff) == b"a\nB\n"
    for moved in (b"b\n", b"b\na\n", b"a\na\nb\n"):
        with pytest.raises(DoesNotFit, match="one.patch: openrlhf/x"):
            apply_diff(moved, diff)


@pytest.mark.parametrize(
    "text",
    [
        "diff --git a/openrlhf/x b/openrlhf/y\nsimilarity index 100%\n",
        "diff --git a/setup.py b/setup.py\n@@ -1 +1 @@\n-a\n+b\n",
        "diff --git a/openrlhf/../x b/openrlhf/../x\n@@ -1 +1 @@\n-a\n+b\n",
        "diff --git a/openrlhf/x b/openrlhf/x\nBinary files differ\n",
        "diff --git a/openrlhf/x b/openrlhf/x\nold mode 100644\nnew mode 100755\n",
        "diff --git a/openrlhf/x b/openrlhf/x\nnew file mode 100644\n@@ -0,0 +1 @@\n+a\n",
        "diff --git a/openrlhf/x b/openrlhf/x\ndeleted file mode 100644\n@@ -1 +0,0 @@\n-a\n",
        "diff --git a/openrlhf/x b/openrlhf/x\n@@ -1,2 +1 @@\n-a\n",
        "diff --git a/openrlhf/x b/openrlhf/x\n@@ -1 +1 @@\n-a\n-b\n+c\n",
        "diff --git a/openrlhf/x b/openrlhf/x\n@@ -1 +1 @@\n-a\nb\n",
        "Subject: nothing\n",
    ],
)
def test_a_patch_that_the_applier_does_not_understand_is_refused(text):
    with pytest.raises(DoesNotFit):
        parse_patch(text.encode(), "odd.patch")


# Applying and reverting


def test_apply_gives_what_git_gives_and_revert_is_byte_identical(site, patched):
    release = tree(site)
    assert patching.status(site) == 1
    patching.apply(site)
    assert package(site) == patched
    assert patching.status(site) == 0
    patching.revert(site)
    assert tree(site) == release
    assert patching.status(site) == 1


def test_applying_twice_and_reverting_twice_change_nothing(site):
    assert patching.revert(site) == 0
    assert patching.apply(site) == 3
    stamps = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    assert patching.apply(site) == 0
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == stamps


def test_an_edited_file_is_named_and_nothing_is_touched(site, capsys):
    (site / "openrlhf/trainer/actor.py").write_text("mine\n")
    edited = tree(site)
    for move in (patching.apply, patching.revert):
        with pytest.raises(UserError, match=r"openrlhf/trainer/actor\.py\. Nothing was written\. Reinstall"):
            move(site)
    with pytest.raises(UserError, match="openrlhf/trainer/actor.py"):
        patching.export(site.parent / "out", site)
    assert patching.status(site) == 2
    assert "openrlhf/trainer/actor.py" in capsys.readouterr().out
    assert tree(site) == edited
    assert not (site.parent / "out").exists()


def test_a_missing_file_is_named(site, capsys):
    (site / "openrlhf/loss.py").unlink()
    with pytest.raises(UserError, match="another series: openrlhf/loss.py"):
        patching.apply(site)
    assert patching.status(site) == 2
    assert "openrlhf/loss.py (missing)" in capsys.readouterr().out


def test_another_version_is_refused(site, tmp_path):
    other = make_site(tmp_path / "other", version="0.12.0")
    for move in (patching.apply, patching.revert, patching.status):
        with pytest.raises(UserError, match=rf"has openrlhf 0\.12\.0, the patches are for {OPENRLHF_VERSION}\. "):
            move(other)
    assert package(other) == package(site)


def test_a_file_keeps_its_mode_and_loses_its_stale_bytecode(site):
    (site / "openrlhf/loss.py").chmod(0o600)
    write(site, {"openrlhf/__pycache__/loss.cpython-311.pyc": "", "openrlhf/__pycache__/other.cpython-311.pyc": ""})
    patching.apply(site)
    assert (site / "openrlhf/loss.py").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in site.glob("openrlhf/__pycache__/*")] == ["other.cpython-311.pyc"]


# Failures half-way


@pytest.mark.parametrize("call", range(3))
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["disk", "key"])
def test_a_failure_while_replacing_puts_every_file_back(site, monkeypatch, call, error):
    release, replace, calls = tree(site), os.replace, []

    def failing(source, destination):
        calls.append(destination)
        if len(calls) == call + 1:
            raise error
        replace(source, destination)

    monkeypatch.setattr(os, "replace", failing)  # a disk that fails in between
    expected = (UserError, "No space left.*patch export") if isinstance(error, OSError) else (KeyboardInterrupt, None)
    with pytest.raises(expected[0], match=expected[1]):
        patching.apply(site)
    assert len(calls) > call
    assert tree(site) == release


@pytest.mark.parametrize("move", [patching.apply, patching.revert])
def test_a_run_that_was_killed_between_two_files_is_finished_by_the_next(site, patched, capsys, move):
    release = package(site)
    write(site, {path: patched[path].decode() for path in ("openrlhf/loss.py", "openrlhf/trainer/short.py")})
    write(site, {"openrlhf/trainer/.actor.py.real_openrlhf-tmp": "half a fi"})
    assert patching.status(site) == 1
    assert "partly applied" in capsys.readouterr().out
    move(site)
    assert {path: content for path, content in package(site).items() if not path.endswith("-tmp")} == (
        patched if move is patching.apply else release
    )


def test_patches_that_do_not_give_the_recorded_files_are_refused(site, world, tmp_path, monkeypatch):
    shutil.copytree(world[0] / "patches", tmp_path / "patches")
    for patch in (tmp_path / "patches" / SERIES).glob("0002*"):
        patch.write_text(patch.read_text().replace("three!", "four"))
    monkeypatch.setattr(patch_series, "PATCH_FOLDERS", (tmp_path / "patches",))
    release = tree(site)
    with pytest.raises(UserError, match="openrlhf/loss.py gives another file than files.json says"):
        patching.apply(site)
    assert tree(site) == release


def test_two_processes_take_turns(world, site, patched):
    folder = os.open(site / "openrlhf", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    runs = [start(world[0], "-m", "real_openrlhf.patching", "apply", "--root", str(site)) for _ in range(2)]
    for run in runs:
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(timeout=0.4)
    assert package(site).keys() == {*RELEASE, "openrlhf/trainer"}
    os.close(folder)
    said = sorted(run.communicate(timeout=20)[0].split(" in ")[0] for run in runs)
    assert said == [f"{SERIES}: applied", f"{SERIES}: was applied already"]
    assert package(site) == patched


# Which OpenRLHF


def test_without_root_the_installed_distribution_is_found_without_an_import(site, patched, monkeypatch):
    write(site, {"openrlhf/__init__.py": "raise ImportError('imported')\n"})
    monkeypatch.syspath_prepend(site)
    patching.apply()
    assert package(site) == {**patched, "openrlhf/__init__.py": b"raise ImportError('imported')\n"}


def test_an_editable_install_is_left_to_git(site, tmp_path, monkeypatch):
    checkout = tmp_path / "a checkout"
    write(checkout, RELEASE)
    origin = {"url": checkout.as_uri(), "dir_info": {"editable": True}}
    editable = make_site(tmp_path / "editable", direct_url=origin)
    shutil.rmtree(editable / "openrlhf")
    monkeypatch.syspath_prepend(editable)
    present = tree(checkout)
    assert patching.status() == 1
    with pytest.raises(UserError, match=rf"editable install of .*a checkout\. Use git there: `git am .*/{SERIES}/\*"):
        patching.apply()
    assert tree(checkout) == present


def test_an_install_from_version_control_is_left_to_git(site, tmp_path):
    origin = {"url": "https://example.org/OpenRLHF.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
    clone = make_site(tmp_path / "clone", direct_url=origin)
    with pytest.raises(UserError, match=rf"installed from https://example.org/OpenRLHF.git.*git am .*/{SERIES}/\*"):
        patching.apply(clone)
    assert package(clone) == package(site)


def test_no_openrlhf_at_all(world, tmp_path):
    nothing = tool(world[0], "status")
    assert nothing.returncode == 2 and "openrlhf is not installed for" in nothing.stderr
    wrong = tool(world[0], "apply", "--root", tmp_path)
    assert wrong.returncode == 2 and "contains no folder openrlhf" in wrong.stderr
    assert nothing.stderr.count("\n") == wrong.stderr.count("\n") == 1


# Copies for clusters, and the check inside workers


@pytest.mark.parametrize("first", [patching.revert, patching.apply])
def test_export_writes_a_patched_copy_that_stands_alone(world, site, tmp_path, patched, first):
    first(site)
    present = tree(site)
    patching.export(tmp_path / "out", site)
    assert tree(site) == present
    assert package(tmp_path / "out") == patched
    assert sorted(os.listdir(tmp_path / "out")) == ["openrlhf", "real_openrlhf"]
    alone = tool(tmp_path / "out", "status", "--root", ".")
    assert (alone.returncode, alone.stderr) == (0, "")
    with pytest.raises(UserError, match="out/openrlhf exists already"):
        patching.export(tmp_path / "out", site)


def check_in_worker(world, *packages: Path) -> subprocess.CompletedProcess:
    program = "from real_openrlhf.patching import assert_applied; assert_applied()"
    return finish(start(world[0], "-c", program, shadow=":".join(map(str, packages))))


def test_a_worker_checks_the_package_that_it_imports(world, site, tmp_path):
    """A job's working_dir with a stock openrlhf wins over the patched one that is installed."""
    patching.apply(site)
    assert check_in_worker(world, site).returncode == 0
    stock = make_site(tmp_path / "working_dir")
    shadowed = check_in_worker(world, stock, site)
    assert shadowed.returncode == 1
    assert f"{stock}/openrlhf on node {os.uname().nodename}" in shadowed.stderr
    assert f"-m real_openrlhf.patching apply --root {stock}`" in shadowed.stderr
    assert "cannot be imported" in check_in_worker(world).stderr


# The real series


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """A copy of the installed OpenRLHF, taken back to the release."""
    return copy_release(tmp_path_factory.mktemp("release"))


def test_the_real_series_gives_what_git_gives_and_reverts(release, tmp_path):
    root = tmp_path / "ours"
    shutil.copytree(release, root)
    before = tree(root)
    patching.apply(root)
    theirs = tmp_path / "git"
    shutil.copytree(release, theirs)
    git(theirs, "init", "-q")
    git(theirs, "add", "-A")
    git(theirs, "commit", "-qm", "release")
    git(theirs, "am", "-q", *map(str, patching.load_series().patches))
    assert git(theirs, "status", "--porcelain") == b""
    assert package(root) == package(theirs)
    for path, content in package(root).items():
        if path.endswith(".py"):
            compile(content, path, "exec")
    patching.revert(root)
    assert tree(root) == before


def test_the_real_files_json_is_the_one_that_its_script_writes(release, tmp_path):
    series = patching.load_series()
    shutil.copytree(REPOSITORY / "real_openrlhf", tmp_path / "real_openrlhf", ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copytree(series.folder, tmp_path / "patches" / series.name)
    (tmp_path / "patches" / series.name / "files.json").unlink()
    record(release, tmp_path)
    assert (tmp_path / "patches" / series.name / "files.json").read_text() == (
        series.folder / "files.json"
    ).read_text()
