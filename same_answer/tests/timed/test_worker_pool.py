"""The verifier's worker processes: slow, killed, out of memory, missing, given hostile answers. All are real."""

import asyncio
import json
import logging
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import hostile_inputs
import psutil
import pytest

from same_answer import verdict, verify
from same_answer.pool import ALGEBRA, Limits, WorkerPool

HARD = "\\sqrt{50}"  # equal to 5\\sqrt{2} by algebra only


def workers(of: psutil.Process | None = None) -> list[psutil.Process]:
    children = (of or psutil.Process()).children()
    return [child for child in children if "same_answer.worker" in child.cmdline()]


@pytest.fixture
def pool(monkeypatch):
    """Replaces the workers of this process by impatient ones that fail on purpose; returns their processes."""

    def start(fault: str = "", deadline: float = 1.0, size: int = 1) -> list[psutil.Process]:
        before = {worker.pid for worker in workers()}
        monkeypatch.setenv("REAL_VERIFIER_FAULTS", json.dumps({fault: "\\clubsuit"} if fault else {}))
        monkeypatch.setattr(verdict, "_workers", {ALGEBRA: WorkerPool(size, Limits(deadline, memory=1024))})
        verdict.ask.cache_clear()
        assert verify(boxed("5\\sqrt{2}"), HARD).reason == "algebra"
        return [worker for worker in workers() if worker.pid not in before]

    return start


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer}}}."


@pytest.mark.parametrize("fault, reason", [("hang", "timeout"), ("oom", "out_of_memory"), ("exit", "worker_died")])
def test_a_failing_worker_is_no_verdict_and_is_replaced(pool, fault, reason):
    (worker,) = pool(fault)
    verdict = verify(boxed("5\\sqrt{2}\\clubsuit"), HARD)
    assert verdict.ignored and verdict.reason == reason
    assert verify(boxed("\\sqrt{2}\\cdot 5"), HARD).score == 1.0
    assert not worker.is_running()


def test_a_worker_that_a_busy_machine_leaves_waiting_keeps_its_time(pool):
    """The deadline is CPU time: twice as long without the CPU costs no verdict."""
    (worker,) = pool(deadline=1.0)

    async def stop_it_meanwhile():
        worker.suspend()
        verdict = asyncio.create_task(asyncio.to_thread(verify, boxed("\\sqrt{2}\\cdot 5"), HARD))
        await asyncio.sleep(2)
        worker.resume()
        return await verdict

    assert asyncio.run(stop_it_meanwhile()).reason == "algebra" and worker.is_running()


def test_a_worker_killed_while_idle_costs_no_verdict(pool):
    (worker,) = pool()
    worker.kill()
    while worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert verify(boxed("\\sqrt{2}\\cdot5"), HARD).score == 1.0


def test_for_a_worker_killed_at_work_another_is_asked(pool):
    (worker,) = pool("hang", deadline=2)

    async def kill_it_at_work():
        used = worker.cpu_times().user
        verdict = asyncio.create_task(asyncio.to_thread(verify, boxed("\\clubsuit"), HARD))
        while worker.cpu_times().user < used + 0.1:
            await asyncio.sleep(0.01)
        worker.kill()
        return await verdict

    assert asyncio.run(kill_it_at_work()).reason == "timeout"  # the other one's


def test_others_are_served_while_one_answer_hangs(pool):
    pool("hang", deadline=4, size=2)  # long enough for the second one to start beside the first

    async def ask():
        stuck = asyncio.create_task(asyncio.to_thread(verify, boxed("\\clubsuit"), HARD))
        await asyncio.sleep(0.1)
        cheap = [await asyncio.to_thread(verify, boxed(str(number)), "7") for number in range(50)]
        symbolic_one = await asyncio.to_thread(verify, boxed("\\sqrt{2}\\cdot5"), HARD)
        assert not stuck.done()
        return cheap, symbolic_one, await stuck

    cheap, symbolic_one, stuck = asyncio.run(ask())
    assert [verdict.score for verdict in cheap] == [float(number == 7) for number in range(50)]
    assert symbolic_one.score == 1.0 and stuck.reason == "timeout"


def test_workers_that_cannot_start_are_no_verdict(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    monkeypatch.setattr(verdict, "_workers", {ALGEBRA: WorkerPool(1, Limits())})
    verdict.ask.cache_clear()
    failed = verify(boxed("5\\sqrt{2}"), HARD)
    assert failed.ignored and failed.reason == "worker_unavailable"
    assert verify(boxed("7"), "7").score == 1.0  # what needs no worker is not affected


def test_workers_die_with_the_process_that_asked():
    script = (
        "from same_answer import verify\n"
        "import sys\n"
        "assert verify(r'\\boxed{5\\sqrt{2}}', r'\\sqrt{50}').score == 1.0\n"
        "print(flush=True)\n"
        "sys.stdin.read()\n"
    )
    client = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    client.stdout.readline()
    orphans = workers(psutil.Process(client.pid))
    client.kill()
    client.communicate()
    assert orphans and psutil.wait_procs(orphans, timeout=10)[1] == []


def test_hostile_answers_get_their_verdict_in_time(monkeypatch, caplog):
    """Two at a time. None is taken for right, and nearly all get a verdict."""
    caplog.set_level(logging.CRITICAL, "same_answer")
    monkeypatch.setattr(verdict, "_workers", {ALGEBRA: WorkerPool(2, Limits(deadline=2.0, memory=1024))})
    assert verify(boxed("\\sqrt{8}"), "2\\sqrt{2}").reason == "algebra"  # the workers are up

    def ask(name: str, response: str, gold: str) -> tuple:
        start = time.monotonic()
        return name, gold, verify(response, gold), time.monotonic() - start

    with ThreadPoolExecutor(2) as executor:
        results = [*executor.map(lambda one: ask(*one), hostile_inputs.HOSTILE)]
    # The deadline is 2 s of CPU time, and 20 s beside other work on the machine.
    assert [(name, seconds) for name, _, _, seconds in results if seconds > 30] == []
    taken = {name.removesuffix(", for a number") for name, _, found, _ in results if found.score == 1.0}
    assert taken <= {"signs", "right to left", "dotless numerals", "10,000 boxes"}  # -(-7), unseen marks, a script
    ignored = [(name, gold, found.reason) for name, gold, found, _ in results if found.ignored]
    assert {reason for *_, reason in ignored} <= {"timeout", "out_of_memory", "worker_died"}
    assert len(ignored) <= 0.1 * len(results) and "7" not in [gold for _, gold, _ in ignored], ignored
