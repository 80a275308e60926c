"""What a vLLM engine's process says of its end, and that a run's last word is that. With vLLM: tests/e2e."""

import logging
import signal
from importlib.metadata import entry_points

import pytest

from real_openrlhf import engine_reason
from real_openrlhf.training.launch.progress import last_error

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


def test_vllm_finds_the_plugins():
    found = {one.name: one.value for one in entry_points(group="vllm.general_plugins")}
    assert found["real_openrlhf_reason"] == "real_openrlhf.engine_reason:tell_reason"
    assert found["real_openrlhf_repeatable"] == "real_openrlhf.hooks.fixes.repeatable_engine:make_repeatable"
