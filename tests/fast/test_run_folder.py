"""Run folders: names, what is never overwritten, what is continued, and one training at a time."""

import json
import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time

import pytest

from real_openrlhf.errors import UserError
from real_openrlhf.files import FINISHED
from real_openrlhf.runs import run_folder
from real_openrlhf.training.launch.progress import end_unwatched


def record(path, started="2026-01-01T00:00:00+00:00", **changes):
    path.mkdir(parents=True, exist_ok=True)
    base = {"recipe": "cpu", "algo": "real", "seed": 42, "status": "failed", "started": started}
    run_folder.write(path, base | changes)
    return path


def test_a_name_says_recipe_algorithm_seed_and_time(tmp_path):
    path = run_folder.create(tmp_path / "runs", run_folder.run_stem("cpu", "grpo", "7"), None)
    assert re.fullmatch(r"cpu-grpo-s7-\d{8}-\d{6}", path.name)


def _create_many(folder, names):
    names.extend([run_folder.create(folder, "cpu-real-s1", None).name for _ in range(20)])


def test_names_never_collide_even_in_the_same_second_from_many_processes(tmp_path):
    with multiprocessing.Manager() as manager:
        names = manager.list()
        workers = [multiprocessing.Process(target=_create_many, args=(tmp_path, names)) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(names) == len(set(names)) == 80
    assert len(list(tmp_path.iterdir())) == 80


def test_a_named_folder_that_exists_is_refused_and_left_as_it_is(tmp_path):
    path = record(tmp_path / "mine")
    before = (path / "run.json").read_bytes()
    with pytest.raises(UserError, match="exists already.*--resume"):
        run_folder.create(tmp_path, "cpu-real-s1", "mine")
    assert (path / "run.json").read_bytes() == before


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "two words"])
def test_a_name_is_not_a_path(tmp_path, name):
    with pytest.raises(UserError, match="--run-name"):
        run_folder.create(tmp_path, "cpu-real-s1", name)


def test_a_place_that_cannot_be_written_is_a_users_mistake(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="--runs-dir"):
        run_folder.create(tmp_path / "file", "cpu-real-s1", None)


def test_resume_takes_the_newest_unfinished_run_of_the_same_recipe_algorithm_and_seed(tmp_path):
    record(tmp_path / "cpu-real-s42-1", started="2026-01-01T00:00:00+00:00")
    newest = record(tmp_path / "cpu-real-s42-2", started="2026-01-02T00:00:00+00:00", status="running")
    record(tmp_path / "cpu-real-s42-3", started="2026-01-03T00:00:00+00:00", status="finished")
    record(tmp_path / "cpu-real-s421-4", started="2026-01-04T00:00:00+00:00", seed=421)
    record(tmp_path / "cpu-real-s42-x-5", started="2026-01-05T00:00:00+00:00", algo="grpo")
    assert run_folder.to_resume(tmp_path, "cpu-real-s42", None) == newest
    assert run_folder.to_resume(tmp_path, "cpu-real-s1", None) is None
    assert run_folder.to_resume(tmp_path / "not there", "cpu-real-s42", None) is None


def test_resume_by_name_starts_anew_where_there_is_nothing(tmp_path):
    path = record(tmp_path / "mine", status="finished")
    assert run_folder.to_resume(tmp_path, "cpu-real-s42", "mine") == path
    assert run_folder.to_resume(tmp_path, "cpu-real-s42", "yours") is None


def test_one_training_at_a_time(tmp_path):
    with run_folder.only_one(tmp_path):
        with pytest.raises(UserError, match="is being trained right now"):
            with run_folder.only_one(tmp_path):
                pass
    with run_folder.only_one(tmp_path):
        pass


def test_the_lock_lives_as_long_as_the_training_process(tmp_path):
    with run_folder.only_one(tmp_path) as lock:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
    with pytest.raises(UserError):
        with run_folder.only_one(tmp_path):
            pass
    child.communicate(b"\n")
    with run_folder.only_one(tmp_path):
        pass


def test_run_json_is_never_seen_half_written(tmp_path):
    record(tmp_path)
    stop = threading.Event()

    def rewrite():
        while not stop.is_set():
            record(tmp_path, padding="x" * 100_000)

    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(200):
            assert json.loads((tmp_path / "run.json").read_text())["recipe"] == "cpu"
    finally:
        stop.set()
        writer.join()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("content", [None, "{"])
def test_a_folder_without_a_readable_run_json_is_not_a_run(tmp_path, content):
    if content:
        (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match="run.json"):
        run_folder.read(tmp_path)


def test_flags_are_kept_as_json_values():
    words = {"switch": (), "whole": ("8",), "rate": ("2e-6",), "pair": ("0.2", "0.28"), "name": ("k3",)}
    found = {name: run_folder.json_value(value) for name, value in words.items()}
    assert found == {"switch": True, "whole": 8, "rate": 2e-6, "pair": [0.2, 0.28], "name": "k3"}
    assert json.loads(json.dumps(run_folder.json_value(("inf", "nan")))) == ["inf", "nan"]


def running(path, *steps: int, torn: bool = False, **changes):
    record(path, status="running", reason=None, finished=None, **changes)
    lines = [json.dumps({"phase": "train", "step": step, "time": 1.0}) + "\n" for step in steps]
    (path / "metrics.jsonl").write_text("".join(lines) + '{"phase": "train", "st' * torn)
    (path / ".lock").touch()
    return path


def test_a_run_whose_processes_are_gone_is_shown_as_what_it_was(tmp_path):
    died, ended = running(tmp_path / "died", 1, 2, 3, torn=True), running(tmp_path / "ended", 1, 2)
    (ended / FINISHED).touch()
    found = run_folder.read(died)
    assert found["status"] == "failed" and "died after step 3" in found["reason"] and found["finished"]
    found = run_folder.read(ended)
    assert found["status"] == "finished" and found["reason"] is None and found["finished"]
    assert run_folder.read(running(tmp_path / "none"))["reason"].startswith("its processes died after step 0")


def test_a_run_is_running_while_one_of_its_processes_is_there(tmp_path):
    path = running(tmp_path / "run", 1)
    with run_folder.only_one(path) as lock:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(lock,))
        os.pwrite(lock, f"{child.pid}\n".encode(), 0)
    assert run_folder.read(path)["status"] == "running"
    with pytest.raises(UserError, match=f"by process {child.pid}: `kill {child.pid}` ends it"):
        with run_folder.only_one(path):
            pass
    child.kill()
    child.wait()
    assert run_folder.read(path)["status"] == "failed"


@pytest.mark.parametrize("where", [{"host": "elsewhere"}, {"job": "run-1"}])
def test_a_run_on_another_machine_is_dead_when_its_log_has_been_silent_for_an_hour(tmp_path, where):
    path = running(tmp_path / "run", 1, **where)
    assert run_folder.read(path)["status"] == "running"
    for name in ("run.json", "metrics.jsonl"):
        os.utime(path / name, (time.time() - 3700,) * 2)
    assert "died after step 1" in run_folder.read(path)["reason"]


def test_who_only_asks_keeps_nobody_from_training(tmp_path):
    path = running(tmp_path / "run", 1)
    stop = threading.Event()

    def ask():
        while not stop.is_set():
            run_folder.is_trained(path)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    try:
        for _ in range(50):
            with run_folder.only_one(path):
                assert run_folder.is_trained(path)
    finally:
        stop.set()
        for thread in asking:
            thread.join()


def test_whoever_comes_next_writes_down_how_a_run_ended(tmp_path):
    for _ in range(2):  # the second time there is nothing left to write
        died = running(tmp_path / "died", 1, 2) if not (tmp_path / "died").exists() else tmp_path / "died"
        said = end_unwatched(died)
        written = json.loads((died / "run.json").read_text())
        assert written["status"] == "failed" and "died after step 2" in written["reason"] and "unseen" not in written
    assert said is None


def test_a_run_that_finished_unseen_gets_its_summary_and_picture(tmp_path):
    path = running(tmp_path / "ended", 1, 2)
    line = {"phase": "train", "time": 1.0, "rollout/pass_rate": 0.5, "policy_loss": 1.0, "entropy_loss": 1.0}
    (path / "metrics.jsonl").write_text("".join(json.dumps({**line, "step": step}) + "\n" for step in (1, 2)))
    (path / FINISHED).touch()
    said = end_unwatched(path)
    assert "finished while nobody watched" in said and "training pass rate" in said
    assert (path / "curves.png").stat().st_size > 0
    assert json.loads((path / "run.json").read_text())["status"] == "finished"


def test_a_folder_that_cannot_be_written_is_only_read(tmp_path, monkeypatch):
    path = running(tmp_path / "died", 1)
    monkeypatch.setattr(run_folder, "write", lambda *_: (_ for _ in ()).throw(PermissionError("read-only")))  # as root
    assert end_unwatched(path) is None and run_folder.read(path)["status"] == "failed"
