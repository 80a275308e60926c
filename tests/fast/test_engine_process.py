"""An engine's process after its parent was killed: real processes, spawned as vLLM spawns them. And its last words."""

import logging
import multiprocessing.connection
import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from real_openrlhf.hooks.engine import engine_process
from real_openrlhf.machine import engine_reason
from real_openrlhf.training.launch.progress import last_error

PARENT = """
import multiprocessing, os, signal, sys, time
from real_openrlhf.hooks.engine import engine_process

def engine():
    if "deaf" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        engine_process.PATIENCE = 0.1
    engine_process.end_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    if "wished" in sys.argv:
        os.environ[engine_process.WANTED] = "1"
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
    program = (
        "from real_openrlhf.hooks.engine import engine_process as e; import threading as t; e.end_with_parent()\n"
    )
    command = [sys.executable, "-c", program + "print(t.active_count())"]
    environment = {**os.environ, engine_process.WANTED: "1"}
    assert subprocess.check_output(command, env=environment, text=True) == "1\n"


def test_vllm_finds_the_plugins():
    found = {one.name: one for one in entry_points(group="vllm.general_plugins")}
    assert found["real_openrlhf"].load() is engine_process.end_with_parent
    assert found["real_openrlhf_reason"].value == "real_openrlhf.machine.engine_reason:tell_reason"
    assert found["real_openrlhf_repeatable"].value == "real_openrlhf.hooks.fixes.repeatable_engine:make_repeatable"


# With vLLM: tests/e2e

DEAD = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the"


def logged(error: Exception) -> None:
    """As vLLM's engine logs what ends it."""
    logger = logging.Logger("an engine's")
    logger.addFilter(engine_reason._see)
    try:
        raise error
    except Exception:
        logger.exception("EngineCore encountered a fatal error.")


def test_an_engine_leaves_its_first_exception(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv(engine_reason.FILE, str(tmp_path / "reason"))
    logged(RuntimeError("CPU Generator does not use offset\nand more"))
    logged(ValueError("a second one"))
    expected = "vLLM's engine process ended with RuntimeError: CPU Generator does not use offset"
    assert (tmp_path / "reason").read_text() == expected
    assert expected in capfd.readouterr().err.splitlines()


def test_a_runs_last_word_is_its_engines_first(tmp_path):
    log = tmp_path / "train.log"
    said = "vLLM's engine process ended with"
    log.write_text(
        f"\x1b[36m(RolloutRayActor pid=7)\x1b[0m {said} RuntimeError: the cause\n"
        f"(RolloutRayActor pid=7) {said} ValueError: what came of it\n{DEAD}\n"
    )
    assert last_error(log) == f"{said} RuntimeError: the cause"
    log.write_text("Traceback (most recent call last):\nKeyError: 'x'\n")
    assert last_error(log) == "KeyError: 'x'"


@pytest.mark.parametrize("number, memory", [(signal.SIGKILL, True), (signal.SIGSEGV, False)])
def test_a_signal_has_a_name(number, memory):
    said = engine_reason.killed_by(-number)
    assert said.startswith(f"killed by {number.name}") and ("memory" in said) == memory
