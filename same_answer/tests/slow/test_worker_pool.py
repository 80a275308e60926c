"""The verifier's worker processes: slow, killed, out of memory, missing, given hostile answers. All are real.

No test has a bar in seconds: benchmarks/speed.py measures. Deadlines are CPU time, so a busy machine changes nothing.
"""

import json
import logging
import math
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hostile_inputs
import psutil
import pytest

import same_answer
from same_answer import verdict, verify
from same_answer.pool import ALGEBRA, Limits, WorkerPool

PACKAGE = Path(same_answer.__file__).parent
HARD = "\\sqrt{50}"  # equal to 5\\sqrt{2} by algebra only


def workers(of: psutil.Process | None = None) -> list[psutil.Process]:
    children = (of or psutil.Process()).children()
    return [child for child in children if {"same_answer.worker", "failing_worker"} & {*child.cmdline()}]


@pytest.fixture
def pool(monkeypatch):
    """Replaces the workers of this process by impatient ones that fail on purpose; returns their processes."""

    def start(
        fault: str = "", deadline: float = 1.0, size: int = 1, marker: str = "\\clubsuit"
    ) -> list[psutil.Process]:
        before = {worker.pid for worker in workers()}
        monkeypatch.setenv("SAME_ANSWER_FAULTS", json.dumps({fault: marker} if fault else {}))
        monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
        failing = WorkerPool(size, Limits(deadline, memory=1024), "failing_worker")
        monkeypatch.setattr(verdict, "_workers", {ALGEBRA: failing})
        forget()
        assert verify(boxed("5\\sqrt{2}"), HARD).reason == "algebra"
        return [worker for worker in workers() if worker.pid not in before]

    yield start
    for worker in workers():  # one that hangs at its start would sleep on
        if "failing_worker" in worker.cmdline():
            worker.kill()
            worker.wait()


def forget() -> None:
    for cached in (verdict.ask, verdict._worked_out, verdict._is_workable):
        cached.cache_clear()


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer}}}."


@pytest.mark.parametrize("fault, reason", [("hang", "timeout"), ("oom", "out_of_memory"), ("exit", "worker_died")])
def test_a_failing_worker_is_no_verdict_and_is_replaced(pool, fault, reason):
    """Unless an answer exhausts it whose gold alone does not: a policy would choose to be ungraded."""
    (worker,) = pool(fault)
    assert verify(boxed("5\\sqrt{2}"), HARD + "\\clubsuit").reason == reason
    mine = verify(boxed("5\\sqrt{2}\\clubsuit"), HARD)
    assert mine == (0.0, "too_large") if fault != "exit" else mine.reason == reason
    assert verify(boxed("\\sqrt{2}\\cdot 5"), HARD).score == 1.0
    assert not worker.is_running()


def test_a_worker_that_a_busy_machine_leaves_waiting_keeps_its_time(pool):
    """The deadline is CPU time: twice as long without the CPU costs no verdict."""
    (worker,) = pool(deadline=1.0)

    worker.suspend()
    with ThreadPoolExecutor(1) as executor:
        verdict = executor.submit(verify, boxed("\\sqrt{2}\\cdot 5"), HARD)
        time.sleep(2)
        worker.resume()
        assert verdict.result().reason == "algebra" and worker.is_running()


def test_a_worker_killed_while_idle_costs_no_verdict_and_for_one_killed_at_work_another_is_asked(pool):
    (worker,) = pool("hang", deadline=2)
    before = {one.pid for one in workers()}
    worker.kill()
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert verify(boxed("\\sqrt{2}\\cdot5"), HARD).score == 1.0
    (worker,) = (one for one in workers() if one.pid not in before)
    used = worker.cpu_times().user

    def kill_it_at_work():
        while worker.cpu_times().user < used + 0.1:
            time.sleep(0.01)
        worker.kill()

    with ThreadPoolExecutor(1) as executor:
        executor.submit(kill_it_at_work)
        assert verify(boxed("\\clubsuit"), HARD).reason == "too_large"  # the other one's


def test_others_are_served_while_one_answer_hangs(pool):
    pool("hang", deadline=4, size=2)  # long enough for the second one to start beside the first
    with ThreadPoolExecutor(1) as executor:
        stuck = executor.submit(verify, boxed("\\clubsuit"), HARD)
        cheap = [verify(boxed(str(number)), "7").score for number in range(50)]
        assert verify(boxed("\\sqrt{2}\\cdot5"), HARD).score == 1.0 and not stuck.done()
    assert cheap == [float(number == 7) for number in range(50)] and stuck.result().reason == "too_large"


def test_workers_that_cannot_start_are_no_verdict(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    monkeypatch.setattr(verdict, "_workers", {ALGEBRA: WorkerPool(1, Limits())})
    forget()
    failed = verify(boxed("5\\sqrt{2}"), HARD)
    assert failed.ignored and failed.reason == "worker_unavailable"
    assert verify(boxed("7"), "7").score == 1.0  # what needs no worker is not affected


@pytest.mark.parametrize("fault, size", [("exit", 1), ("hang", 2)])
def test_a_start_that_fails_or_hangs_costs_no_verdict(pool, tmp_path, fault, size):
    """The one is started again, beside the other a second one is ready."""
    pool(f"{fault} at first", size=size, marker=str(tmp_path / "started"))
    assert (tmp_path / "started").exists()


PLACE = r"""
import resource, sys
sys.path += sys.argv[1:]
from same_answer import verify
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
print(verify(r'\boxed{5\sqrt{2}}', r'\sqrt{50}').reason)
"""


@pytest.mark.parametrize("module", ["json", "logging", "ctypes", "mpmath", "same_answer"])
def test_a_worker_runs_no_module_of_the_working_directory_and_fits_a_hard_limit(tmp_path, module):
    """Nor what lies beside an installed package, before the standard library."""
    site, here = tmp_path / "site", tmp_path / "here"
    shutil.copytree(PACKAGE, site / "same_answer", ignore=shutil.ignore_patterns("tests"))
    here.mkdir()
    for folder in (here, *[site] * (module in ("json", "logging", "ctypes"))):
        (folder / f"{module}.py").write_text(f"print('{module} of', __file__)\nraise SystemExit")
    (tmp_path / "ask.py").write_text(PLACE)
    words = [sys.executable, tmp_path / "ask.py", site]
    assert subprocess.run(words, cwd=here, capture_output=True, text=True).stdout == "algebra\n"


ASK = r"""
from same_answer import verify
assert verify(r'\boxed{5\sqrt{2}}', r'\sqrt{50}').score == 1.0
input(print(flush=True))
"""


def test_workers_die_with_the_process_that_asked():
    client = subprocess.Popen([sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client.stdout.readline()
    orphans = workers(psutil.Process(client.pid))
    client.kill()
    client.communicate()
    assert orphans and psutil.wait_procs(orphans)[1] == []


def test_hostile_answers_are_wrong_or_without_a_verdict(monkeypatch, caplog):
    """Two at a time. None is taken for right, and nearly all get a verdict."""
    caplog.set_level(logging.CRITICAL, "same_answer")
    monkeypatch.setattr(verdict, "_workers", {ALGEBRA: WorkerPool(2, Limits(deadline=2.0, memory=1024))})
    with ThreadPoolExecutor(2) as executor:
        found = [*executor.map(lambda one: verify(one[1], one[2]), hostile_inputs.HOSTILE)]
    results = [(name, gold, *one) for (name, _, gold), one in zip(hostile_inputs.HOSTILE, found, strict=True)]
    taken = {name.removesuffix(", for a number") for name, _, score, _ in results if score == 1.0}
    assert taken <= {"signs", "right to left", "dotless numerals", "10,000 boxes"}  # -(-7), unseen marks, a script
    ignored = [(name, gold, reason) for name, gold, score, reason in results if math.isnan(score)]
    assert {reason for *_, reason in ignored} <= {"timeout", "out_of_memory", "worker_died"}
    assert len(ignored) <= 0.1 * len(results) and "7" not in [gold for _, gold, _ in ignored], ignored
