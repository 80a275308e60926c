"""An engine's process after its parent was killed: real processes, spawned as vLLM spawns them."""

import multiprocessing.connection
import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from real_openrlhf.hooks import engine_process

PARENT = """
import multiprocessing, os, signal, sys, time
from real_openrlhf.hooks import engine_process

def engine():
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        engine_process.PATIENCE = 0.1
    engine_process.end_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    if "wished" in sys.argv:
        engine_process.end_engines_with_this_process()
    multiprocessing.get_context("spawn").Process(target=engine).start()
    time.sleep(60)
"""


@pytest.mark.parametrize(
    "words, ends", [(["wished"], True), (["wished", "deaf"], True), ([], False)], ids=lambda value: str(value)
)
def test_it_ends_with_a_parent_that_was_killed(tmp_path, words, ends):
    (tmp_path / "parent.py").write_text(PARENT)
    command = [sys.executable, str(tmp_path / "parent.py"), *words]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    engine = os.pidfd_open(int(parent.stdout.readline()))
    try:
        parent.kill()
        parent.wait()
        assert bool(multiprocessing.connection.wait([engine], 10 if ends else 1)) == ends
    finally:
        if not ends:
            signal.pidfd_send_signal(engine, signal.SIGKILL)
        os.close(engine)


def test_a_process_that_nobody_spawned_is_left_alone():
    program = "from real_openrlhf.hooks import engine_process as e; import threading as t; e.end_with_parent()\n"
    command = [sys.executable, "-c", program + "print(t.active_count())"]
    environment = {**os.environ, engine_process.WANTED: "1"}
    assert subprocess.check_output(command, env=environment, text=True) == "1\n"


def test_vllm_finds_it():
    (found,) = (one for one in entry_points(group="vllm.general_plugins") if one.name == "real_openrlhf")
    assert found.load() is engine_process.end_with_parent
