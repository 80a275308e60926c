"""Run folders and their records: names, locks, endings; whole folders; and the code that a run names is what ran."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_runs import flip

from real_openrlhf.base import atomic_dirs
from real_openrlhf.base.atomic_dirs import MANIFEST
from real_openrlhf.base.errors import UserError
from real_openrlhf.base.parsing import json_value
from real_openrlhf.base.run_files import FINISHED
from real_openrlhf.runs import provenance, run_folder
from real_openrlhf.training.progress import end_unwatched


def record(path, started="2026-01-01T00:00:00+00:00", **changes):
    path.mkdir(parents=True, exist_ok=True)
    base = {"recipe": "cpu", "algo": "real", "seed": 42, "status": "failed", "started": started}
    run_folder.write(path, base | changes)
    return path


def test_names_say_recipe_algorithm_seed_and_time_and_never_collide(tmp_path):
    """Even in the same second from many threads."""
    stem = run_folder.run_stem("cpu", "grpo", "7")
    with ThreadPoolExecutor(4) as threads:
        names = list(threads.map(lambda _: run_folder.create(tmp_path / "runs", stem, None).name, range(80)))
    assert len(set(names)) == 80 and all(re.match(r"cpu-grpo-s7-\d{8}-\d{6}", name) for name in names)


def test_unfinished_runs_of_the_same_recipe_algorithm_and_seed_come_newest_first(tmp_path):
    oldest, newest = (record(tmp_path / f"cpu-real-s42-{day}", started=f"2026-01-0{day}") for day in (1, 2))
    record(tmp_path / "cpu-real-s42-3", status="finished")
    record(tmp_path / "cpu-real-s421-4", seed=421)
    record(tmp_path / "cpu-real-s42-x-5", algo="grpo")
    assert [*run_folder.unfinished(tmp_path, "cpu-real-s42")] == [newest, oldest]
    assert not run_folder.unfinished(tmp_path / "not there", "cpu-real-s42")


def test_a_folder_with_nothing_but_a_lock_is_a_new_runs(tmp_path):
    (tmp_path / "mine").mkdir()
    with run_folder.only_one(tmp_path / "mine"):
        pass
    assert run_folder.create(tmp_path, "cpu-real-s42", "mine") == tmp_path / "mine"
    (tmp_path / "mine/notes.txt").touch()
    with pytest.raises(UserError, match="is not a run"):
        run_folder.create(tmp_path, "cpu-real-s42", "mine")


def test_flags_are_kept_as_json_values():
    words = {"switch": (), "whole": ("8",), "rate": ("2e-6",), "pair": ("0.2", "0.28"), "name": ("k3",)}
    found = {name: json_value(value) for name, value in words.items()}
    assert found == {"switch": True, "whole": 8, "rate": 2e-6, "pair": [0.2, 0.28], "name": "k3"}
    assert json.loads(json.dumps(json_value(("inf", "nan")))) == ["inf", "nan"]


def running(path, *steps: int, torn: bool = False, **changes):
    record(path, status="running", reason=None, finished=None, **changes)
    lines = [json.dumps({"phase": "train", "step": step, "time": 1.0}) + "\n" for step in steps]
    (path / "metrics.jsonl").write_text("".join(lines) + '{"phase": "train", "st' * torn)
    (path / ".lock").touch()
    return path


def test_a_run_whose_processes_are_gone_is_shown_as_what_it_was(tmp_path):
    died, ended = running(tmp_path / "died", 1, 2, 3, torn=True), running(tmp_path / "ended", 1, 2)
    (ended / FINISHED).touch()
    found = run_folder.state(died)
    assert found["status"] == "failed" and "died after step 3" in found["reason"] and found["finished"]
    found = run_folder.state(ended)
    assert found["status"] == "finished" and found["reason"] is None and found["finished"]
    assert run_folder.state(running(tmp_path / "none"))["reason"].startswith("its processes died after step 0")


def test_a_run_is_running_while_one_of_its_processes_is_there(tmp_path):
    path = running(tmp_path / "run", 1)
    with run_folder.only_one(path) as lock:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
        os.pwrite(lock, f"{child.pid}\n".encode(), 0)
    assert run_folder.state(path)["status"] == "running"
    with pytest.raises(UserError, match=f"by process {child.pid}: `kill {child.pid}` ends it"):
        with run_folder.only_one(path):
            pass
    child.kill()
    child.wait()
    assert run_folder.state(path)["status"] == "failed"


def test_a_run_on_another_machine_is_dead_when_its_log_has_been_silent_for_an_hour(tmp_path):
    path = running(tmp_path / "run", 1, host="elsewhere")
    assert run_folder.state(path)["status"] == "running"
    for name in ("run.json", "metrics.jsonl"):
        os.utime(path / name, (time.time() - 3700,) * 2)
    assert "died after step 1" in run_folder.state(path)["reason"]


def test_who_only_asks_keeps_nobody_from_training(tmp_path):
    path = running(tmp_path / "run", 1)
    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(lambda: [run_folder.is_running(path) for _ in range(2000)]) for _ in range(2)]
        while not all(one.done() for one in asking):
            with run_folder.only_one(path):
                assert run_folder.is_running(path)


def test_a_run_that_finished_unseen_gets_its_summary_and_picture(tmp_path):
    path = running(tmp_path / "ended", 1, 2)
    line = {"phase": "train", "time": 1.0, "rollout/pass_rate": 0.5, "policy_loss": 1.0, "entropy_loss": 1.0}
    trained_nothing = {name: value for name, value in line.items() if name != "entropy_loss"}
    lines = [{**line, "step": 1, "rollout/entropy": 3.0}, {**trained_nothing, "step": 2, "rollout/entropy": 2.0}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    (path / FINISHED).touch()
    said = end_unwatched(path)
    assert "finished while nobody watched" in said and "\npass rate" in said
    assert re.search(r"\nentropy +3\.000 +2\.000\n", said)  # as in a report, at every step
    assert (path / "curves.png").stat().st_size > 0
    assert json.loads((path / "run.json").read_text())["status"] == "finished"


def test_whoever_comes_next_writes_down_how_a_run_ended(tmp_path, monkeypatch):
    died = running(tmp_path / "died", 1, 2)
    with monkeypatch.context() as patch:  # a folder that cannot be written is only read
        patch.setattr(run_folder, "write", lambda *_: (_ for _ in ()).throw(PermissionError("read-only")))  # as root
        assert end_unwatched(died) is None and run_folder.state(died)["status"] == "failed"
    assert "died after step 2" in end_unwatched(died)
    written = json.loads((died / "run.json").read_text())
    assert written["status"] == "failed" and "died after step 2" in written["reason"] and "unseen" not in written
    assert end_unwatched(died) is None  # nothing is left to write


# Folders that are whole or not there: whatever happens to a file of one is told by the file's name

CONTENT = {"a.bin": b"\0" * 1000, "deep/b.bin": bytes(range(256)), "empty": b""}


def draft_of(folder, content=CONTENT):
    for name, data in content.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def publish(parent, step, content=CONTENT):
    draft = draft_of(parent / ".writing" / f"global_step{step}", content)
    files = atomic_dirs.read(draft, atomic_dirs.names(draft))
    atomic_dirs.publish(draft, parent / draft.name, files, {"global_step": step})
    return parent / draft.name


def test_a_published_folder_is_whole_and_its_draft_is_gone(tmp_path):
    place = publish(tmp_path, 4)
    assert atomic_dirs.damage(place) is None
    assert atomic_dirs.names(place) == ["a.bin", "deep/b.bin", "empty"]
    assert list((tmp_path / ".writing").iterdir()) == []


def test_a_folder_saved_again_is_there_whenever_it_is_interrupted(tmp_path, monkeypatch):
    """The new one takes the old one's name; between the two renames the old one is beside its place."""
    place = publish(tmp_path, 4)
    draft = draft_of(tmp_path / ".writing" / place.name)
    rename = Path.rename

    def interrupted(self, target):
        if self == draft:
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "rename", interrupted)
        atomic_dirs.move(draft, place)
    assert not place.exists()
    assert atomic_dirs.newest_first(tmp_path) == [place] and atomic_dirs.damage(place) is None
    shutil.rmtree(draft)
    publish(tmp_path, 4, {"only": b"this"})
    assert atomic_dirs.damage(place) is None and atomic_dirs.names(place) == ["only"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(atomic_dirs.ASIDE)] == []


DAMAGES = {  # what is done to a folder, and what is told
    "a.bin has 999 of 1000 bytes": lambda place: os.truncate(place / "a.bin", 999),
    "empty has 1 of 0 bytes": lambda place: (place / "empty").write_bytes(b"x"),
    "deep/b.bin is not what was written": lambda place: flip(place / "deep/b.bin"),
    "a.bin is missing": lambda place: (place / "a.bin").unlink(),
    "empty is missing": lambda place: ((place / "empty").unlink(), (place / "empty").mkdir()),
    f"{MANIFEST} is missing": lambda place: (place / MANIFEST).unlink(),
    f"{MANIFEST} is missing or cannot be read": lambda place: os.truncate(place / MANIFEST, 60),
    "cannot be read": lambda place: (place / MANIFEST).write_text('{"files": {"a": 1}}'),
    "or cannot be read": lambda place: (place / MANIFEST).write_text("[]"),
}


@pytest.mark.parametrize("said", DAMAGES)
def test_damage_is_told_by_name(tmp_path, said):
    place = publish(tmp_path, 4)
    DAMAGES[said](place)
    assert said in atomic_dirs.damage(place)


def test_the_newest_is_first_whatever_the_clock_says(tmp_path):
    for step in (4, 12, 8):
        os.utime(publish(tmp_path, step), (1e9 - step, 1e9 - step))
    (tmp_path / "latest").write_text("global_step8")
    draft_of(tmp_path / ".writing" / "global_step16")
    unlisted = draft_of(tmp_path / "global_step20")
    assert [path.name for path in atomic_dirs.newest_first(tmp_path)] == [
        *("global_step12", "global_step8", "global_step4"),
        unlisted.name,
    ]


# The code that a run names is the code that ran: on real git repositories, and without one.


PACKAGE = Path(provenance.PACKAGE)


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


def test_a_checkout_names_its_commit_and_its_tree(checkout, tmp_path):
    """Also a worktree, under a hook's environment."""
    commit, tree = git(checkout, "rev-parse", "--short", "HEAD"), git(checkout, "rev-parse", "HEAD^{tree}")
    (checkout / "notes.txt").write_text("not tracked")
    hook = {"GIT_DIR": str(tmp_path), "GIT_INDEX_FILE": "nothing"}
    assert code_of(checkout, **hook) == {"code_version": commit, "tree": tree}
    git(checkout, "tag", "v9")
    assert code_of(checkout) == {"code_version": "v9", "tree": tree}
    other = tmp_path / "other"
    git(checkout, "worktree", "add", "--quiet", other)
    with (other / "real_openrlhf" / "base" / "errors.py").open("a") as file:
        file.write("# changed\n")
    assert code_of(other) == {"code_version": "v9-dirty", "tree": None}
    git(other, "commit", "--quiet", "--all", "--message", "two")
    assert code_of(other)["tree"] == git(other, "rev-parse", "HEAD^{tree}") != tree


def test_without_git_the_version_is_the_packages(checkout):
    (checkout / ".git" / "HEAD").write_text("nothing\n")
    assert code_of(checkout) == {"code_version": provenance.__version__, "tree": None}
    shutil.rmtree(checkout / ".git")
    assert code_of(checkout)["tree"] is None


def test_a_record_has_versions_patches_hashes_the_machine_and_what_chooses_verdicts(tmp_path):
    (tmp_path / "data.jsonl").write_bytes(b"abc")
    found = provenance.provenance([], {})
    assert provenance.hashes([tmp_path / "data.jsonl"]) == {
        str(tmp_path / "data.jsonl"): hashlib.sha256(b"abc").hexdigest()
    }
    assert re.fullmatch("[0-9a-f]{64}", found["patches"]["sha256"]) and found["patches"]["series"] == "openrlhf-0.11.2"
    assert {"python", "real-openrlhf", "torch"} <= found["versions"].keys() and found["code_version"]
    here = provenance.machine(["NVIDIA H200"])
    assert here["cpu"] and here["gpus"] == "NVIDIA H200"
    known = set(Path("/proc/cpuinfo").read_text().split())
    assert set(here["instructions"].split()) == known & {*provenance.INSTRUCTIONS}
    usual = provenance.variables({"REAL_THINK": "", "HOME": "/root"})
    assert usual == {"REAL_ALLOW": "", "REAL_GRADER": "robust", "REAL_THINK": "auto"}
    changed = provenance.variables({"REAL_GRADER": "disco", "OMP_NUM_THREADS": "2"})
    assert changed == {"OMP_NUM_THREADS": "2", "REAL_ALLOW": "", "REAL_GRADER": "disco", "REAL_THINK": "auto"}


def test_a_finished_run_with_fewer_steps_says_why(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"phase": "train", "step": 6}\n')
    last = run_folder.last_step(tmp_path / "metrics.jsonl")
    assert run_folder.early_end(last, 6, 1) is None and run_folder.early_end(last, 0, 1) is None
    assert "the data ended after step 6 of 8" in run_folder.early_end(last, 8, 1)
    assert run_folder.early_end(last, 8, 3) is None and run_folder.early_end(last, 9, 3)
