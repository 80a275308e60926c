"""A run that stands still ends, with a code, the phase, and the stacks of what hangs: real processes, real signals."""

import json
import os
import sys
import time

import pytest

from real_openrlhf import signs_of_life
from real_openrlhf.training.launch.process import STALLED, Watch, supervise
from real_openrlhf.training.launch.progress import Progress

SECONDS = 1.0

# A trainer with a worker of its own; the worker notes its phase and then hangs in a reward function.
HANGS = """
import subprocess, sys, time
from real_openrlhf.signs_of_life import enter, offer_stacks
offer_stacks()
if len(sys.argv) == 2:
    subprocess.Popen([sys.executable, *sys.argv, "x"])
def reward_func():
    enter(sys.argv[1], "generation and rewards")
    time.sleep(600)
def wait_for_the_worker():
    time.sleep(600)
wait_for_the_worker() if len(sys.argv) == 2 else reward_func()
"""


def watched(tmp_path, program: str, seconds: float = SECONDS) -> tuple[int, str | None]:
    script = tmp_path / "trainer.py"
    script.write_text(program)
    with open(tmp_path / ".lock", "w") as lock:
        progress = Progress(tmp_path, None, tmp_path / "train.log")
        watch = Watch(tmp_path, seconds / 60)
        return supervise([sys.executable, str(script), str(tmp_path)], os.environ, lock.fileno(), progress, watch)


def test_a_run_that_hangs_ends_and_says_where(tmp_path):
    code, reason = watched(tmp_path, HANGS)
    assert code == STALLED == 124
    assert reason.startswith("stalled: nothing new for") and "in generation and rewards, since" in reason
    assert f"on {os.uname().nodename}" in reason and "stacks of 2 processes" in reason
    stacks = [path.read_text() for path in (tmp_path / "stalled").glob("[0-9]*.txt")]
    assert any("in reward_func" in text for text in stacks)
    assert any("in wait_for_the_worker" in text for text in stacks)
    listed = (tmp_path / "stalled/processes.txt").read_text()
    assert listed.count("trainer.py") == 2


def test_a_run_whose_process_is_stopped_is_ended_too(tmp_path):
    """SIGSTOP: it answers nothing, and hears no SIGTERM."""
    code, reason = watched(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)")
    assert code == STALLED and "the start of Ray, the engine and the policy" in reason
    assert "  stopped  " in (tmp_path / "stalled/processes.txt").read_text()


def test_a_run_that_goes_on_is_left_alone(tmp_path):
    """Phases and steps are signs of life; printing is none."""
    program = (
        "import sys, time\nfrom real_openrlhf.signs_of_life import enter\n"
        "for step in range(5):\n"
        "    enter(sys.argv[1], f'phase {step}')\n    time.sleep(0.5)\n"
    )
    assert watched(tmp_path, program) == (0, None)
    noted = json.loads((tmp_path / signs_of_life.PHASE).read_text())
    assert noted["phase"] == "phase 4" and not (tmp_path / "stalled").exists()


def test_what_only_prints_has_stalled(tmp_path):
    program = "import time\nfor _ in range(600): print('still waiting', flush=True); time.sleep(0.1)"
    assert watched(tmp_path, program)[0] == STALLED


@pytest.mark.parametrize("seconds", [0, 1000])
def test_it_can_be_turned_off(tmp_path, seconds):
    assert watched(tmp_path, "import time; time.sleep(2)", seconds) == (0, None)


def test_a_watcher_that_stood_still_itself_judges_nobody(tmp_path):
    watch = Watch(tmp_path, 1)
    watch.seen = ((0, 0),) * 3
    watch.last = watch.looked = time.monotonic() - 3600
    assert watch.stalled() is None
