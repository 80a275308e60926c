"""Ctrl-C and SIGTERM at several moments of the real commands: they end and say so. `every` has more moments."""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from every import every

TRAIN = "train --max-steps 1000 --run-name mine"
COMMANDS = {
    "rehearse": "train --rehearse",
    "train": TRAIN,
    "compare": "compare --algos real grpo --seeds 2 --steps 1000 --out out",
    "eval": "eval --model model --benchmarks problems.jsonl --out e --k 4000 --think optional --max-new-tokens 8",
    "doctor": "doctor",
}
# Seconds after the start: while Python starts, while the stack is imported, while Ray and the engine start.
MOMENTS = [
    *[("train", signal.SIGINT, 0.1), ("train", signal.SIGTERM, 3), ("train", signal.SIGINT, 12)],
    *[("compare", signal.SIGINT, 6), ("eval", signal.SIGTERM, 5), ("doctor", signal.SIGINT, 2)],
    *[pytest.param("rehearse", *moment, marks=every) for moment in ((signal.SIGINT, 9), (signal.SIGTERM, 60))],
]
MORE = [0.05, 0.2, 0.5, 1, 2, 4, 7, 10, 14, 18, 23, 30]


def below(folder) -> list[str]:
    """Processes that work for a command in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline())
            if str(folder) in words or (process.cwd() == str(folder) and process.pid != os.getpid()):
                found.append(f"{process.pid} {process.status()} {words[:200]}")
        except psutil.Error:
            continue
    return found


# What Python says of an exception in this callback of its import, and goes on
IGNORED = "Exception ignored in: <function _get_module_lock.<locals>.cb"


def ending(process: subprocess.Popen, number: int, said: Path) -> int:
    """Its exit status. A lost signal is seen by a command that goes on; where Python lost it, a user sends another."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(30)
    if IGNORED in said.read_text(encoding="utf-8", errors="replace"):
        os.killpg(process.pid, number)
    return process.wait(270)


@pytest.mark.parametrize(
    "command, number, seconds",
    [
        *MOMENTS,
        *(
            pytest.param(command, number, seconds, marks=every)
            for command in COMMANDS
            if command != "rehearse"
            for number in (signal.SIGINT, signal.SIGTERM)
            for seconds in MORE
        ),
    ],
)
def test_a_signal_ends_the_command(elsewhere, environment, program, command, number, seconds):
    words = [*program, *COMMANDS[command].split()]
    with (elsewhere / "said").open("w") as output:
        process = subprocess.Popen(
            words, cwd=elsewhere, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        time.sleep(seconds)
        ended_early = process.poll() is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)  # as a terminal does: to all that the command has started in its group
        try:
            code = ending(process, number, elsewhere / "said")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    said = (elsewhere / "said").read_text(encoding="utf-8")
    if ended_early:
        assert command == "doctor" and code == 0, said
        pytest.skip("it had ended by then")
    # a Ctrl-C while Python itself starts, on a busy machine
    starts = code == 1 and "Fatal Python error: init_" in said
    assert starts or code in (128 + number, -number), said  # the second: earlier still
    for record in (json.loads(path.read_text()) for path in elsewhere.glob("**/runs/*/run.json")):
        assert (record["status"], record["reason"]) == ("failed", f"interrupted by {number.name}")
    if code > 0 and not starts:
        assert said.count("Traceback") == said.count(IGNORED) and ("interrupted" in said or "missing runs" in said), (
            said
        )
    deadline = time.monotonic() + 300
    while (left := below(elsewhere)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert left == []
