"""Run folders: names, what is never overwritten, what is continued, and one training at a time."""

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

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


def test_names_never_collide_even_in_the_same_second_from_many_threads(tmp_path):
    with ThreadPoolExecutor(4) as threads:
        names = list(threads.map(lambda _: run_folder.create(tmp_path, "cpu-real-s1", None).name, range(80)))
    assert len(set(names)) == len(list(tmp_path.iterdir())) == 80


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
    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(lambda: [run_folder.is_trained(path) for _ in range(2000)]) for _ in range(2)]
        while not all(one.done() for one in asking):
            with run_folder.only_one(path):
                assert run_folder.is_trained(path)


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
    trained_nothing = {name: value for name, value in line.items() if name != "entropy_loss"}
    lines = [{**line, "step": 1}, {**trained_nothing, "step": 2}]
    (path / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    (path / FINISHED).touch()
    said = end_unwatched(path)
    assert "finished while nobody watched" in said and "training pass rate" in said
    assert (path / "curves.png").stat().st_size > 0
    assert json.loads((path / "run.json").read_text())["status"] == "finished"


def test_a_folder_that_cannot_be_written_is_only_read(tmp_path, monkeypatch):
    path = running(tmp_path / "died", 1)
    monkeypatch.setattr(run_folder, "write", lambda *_: (_ for _ in ()).throw(PermissionError("read-only")))  # as root
    assert end_unwatched(path) is None and run_folder.read(path)["status"] == "failed"
