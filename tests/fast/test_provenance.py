"""The code that a run names is the code that ran: on real git repositories, and without one."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from invented_runs import write_run

from real_openrlhf.base.errors import UserError
from real_openrlhf.comparison.publish import publish
from real_openrlhf.runs import provenance

PACKAGE = Path(provenance.PACKAGE)
HEX = re.compile("[0-9a-f]{40}")


def git(checkout, *words):
    who = ("-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", "-C", checkout, *who, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A repository with a copy of the package and one commit."""
    place = tmp_path / "checkout"
    shutil.copytree(PACKAGE, place / "real_openrlhf", ignore=shutil.ignore_patterns("__pycache__"))
    (place / ".gitignore").write_text("__pycache__/\n")
    git(tmp_path, "init", "--quiet", place)
    git(place, "add", ".")
    git(place, "commit", "--quiet", "--message", "one")
    return place


def code_of(place, **environment):
    """What the copy of the package in this place says of itself, asked in a process of its own."""
    words = [sys.executable, "-c", f"import json, {provenance.__name__} as p; print(json.dumps(p.code()))"]
    environment = {**os.environ, "PYTHONPATH": str(place), **environment}
    return json.loads(subprocess.run(words, cwd=place, env=environment, capture_output=True, check=True).stdout)


def test_a_committed_checkout_names_its_commit_and_its_tree(checkout):
    commit, tree = git(checkout, "rev-parse", "--short", "HEAD"), git(checkout, "rev-parse", "HEAD^{tree}")
    (checkout / "notes.txt").write_text("not tracked")
    assert code_of(checkout) == {"code_version": commit, "tree": tree}
    git(checkout, "tag", "v9")
    assert code_of(checkout) == {"code_version": "v9", "tree": tree}


def test_a_changed_checkout_names_the_tree_that_a_commit_of_it_would_have(checkout):
    with (checkout / "real_openrlhf" / "base" / "errors.py").open("a") as file:
        file.write("# changed, not staged\n")
    (checkout / "real_openrlhf" / "new.py").write_text("# staged\n")
    git(checkout, "add", "real_openrlhf/new.py")
    (checkout / "real_openrlhf" / "py.typed").unlink()
    state = git(checkout, "status", "--porcelain"), git(checkout, "count-objects", "-v")
    found = code_of(checkout)
    assert state == (git(checkout, "status", "--porcelain"), git(checkout, "count-objects", "-v"))
    assert found["code_version"] == f"{git(checkout, 'rev-parse', '--short', 'HEAD')}-dirty"
    assert found["tree"] != git(checkout, "rev-parse", "HEAD^{tree}")
    git(checkout, "commit", "--quiet", "--all", "--message", "two")
    assert found["tree"] == git(checkout, "rev-parse", "HEAD^{tree}") == code_of(checkout)["tree"]


def test_a_worktree_and_a_hooks_environment_name_their_own_code(checkout, tmp_path):
    other = tmp_path / "other"
    git(checkout, "worktree", "add", "--quiet", other)
    with (other / "real_openrlhf" / "base" / "errors.py").open("a") as file:
        file.write("# changed\n")
    clean, changed = code_of(checkout, GIT_DIR=str(tmp_path), GIT_INDEX_FILE="nothing"), code_of(other)
    assert clean["tree"] == git(checkout, "rev-parse", "HEAD^{tree}")
    git(other, "commit", "--quiet", "--all", "--message", "two")
    assert changed["tree"] == git(other, "rev-parse", "HEAD^{tree}") != clean["tree"]


def test_without_git_the_packages_files_are_named_by_hash(checkout, tmp_path):
    moved = tmp_path / "site-packages"
    shutil.copytree(checkout / "real_openrlhf", moved / "real_openrlhf")
    shutil.rmtree(checkout / ".git")
    found = code_of(checkout)
    assert found["tree"] is None and found["no_tree"] == "the package does not run from a git checkout"
    assert re.fullmatch("[0-9a-f]{64}", found["package_sha256"]) and code_of(moved) == found
    assert provenance.irreproducible(found) is None
    with (moved / "real_openrlhf" / "base" / "errors.py").open("a") as file:
        file.write("# edited in place\n")
    assert code_of(moved)["package_sha256"] != found["package_sha256"]


def test_a_repository_that_git_cannot_read_is_said_and_not_published(checkout):
    (checkout / ".git" / "HEAD").write_text("nothing\n")
    found = code_of(checkout)
    assert found["tree"] is None and found["no_tree"].startswith("git failed: fatal: not a git repository")
    assert "does not name the tree that it ran (git failed:" in provenance.irreproducible(found)


NO_COMMIT = r"ran code that no commit has \(1b2c3d4-dirty\)"
COMMITTED = {"code_version": "8ace1e6", "tree": "1" * 40}
DIRTY = {**COMMITTED, "code_version": "1b2c3d4-dirty"}


@pytest.mark.parametrize(
    "said, why",
    [
        (DIRTY, NO_COMMIT),
        ({"code_version": "8ace1e6"}, r"does not name the tree that it ran \(an earlier version made it\)"),
        ({**COMMITTED, "earlier_code": [DIRTY]}, NO_COMMIT),
    ],
)
def test_a_run_of_code_that_nobody_has_is_not_published(tmp_path, said, why):
    records = {"a": COMMITTED, "b": {"tree": None, **said}}
    runs = [write_run(tmp_path / "runs", name=name, **record) for name, record in records.items()]
    with pytest.raises(UserError, match=f"runs/b {why}.*Commit the changes"):
        publish(runs, tmp_path / "published")
    assert not (tmp_path / "published").exists()


def test_a_changed_checkout_is_refused_before_anything_is_trained(checkout, tmp_path):
    with (checkout / "real_openrlhf" / "base" / "errors.py").open("a") as file:
        file.write("# changed\n")
    words = ["-m", "real_openrlhf.cli", "compare", "--out", tmp_path / "out", "--publish", tmp_path / "published"]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run([sys.executable, *words], cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "--publish: a run made now ran code that no commit has" in done.stderr
    assert "git stash" in done.stderr and not list(tmp_path.glob("out/*/*"))


def test_a_resumed_run_keeps_the_code_of_its_earlier_parts():
    one, two = ({"code_version": version, "tree": version * 40} for version in "12")
    assert provenance.earlier_code(one, one) == []
    assert provenance.earlier_code(one, two) == [one]
    assert provenance.earlier_code({**two, "earlier_code": [one]}, two) == [one]
    assert provenance.earlier_code({**two, "earlier_code": [one]}, one) == [two]


def test_provenance_has_versions_code_patches_and_data_hashes(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_bytes(b"abc")
    found = provenance.provenance([data])
    assert found["data"] == {str(data): "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"}
    assert re.fullmatch("[0-9a-f]{64}", found["patches"]["sha256"])
    assert found["patches"]["series"] == "openrlhf-0.11.2"
    assert {"python", "real-openrlhf", "torch"} <= found["versions"].keys()
    assert found["code_version"] and "tree" in found
