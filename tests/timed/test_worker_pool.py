"""What happens when the verifier's workers are slow, killed, out of memory or missing. Real processes throughout."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from real_openrlhf.rewards.verifier import verdict, worker_pool
from real_openrlhf.rewards.verifier.verdict import verify
from real_openrlhf.rewards.verifier.worker_template import Template

HARD = "\\sqrt{50}"  # equal to 5\\sqrt{2} by algebra only


@pytest.fixture
def pool(monkeypatch):
    """Replaces the workers of this process by impatient ones that fail on purpose."""

    def start(fault: str = "", deadline: float = 1.0, memory: int = 1024, size: int = 1):
        monkeypatch.setenv("REAL_VERIFIER_FAULTS", json.dumps({fault: "\\clubsuit"} if fault else {}))
        workers = worker_pool.WorkerPool(size, worker_pool.Limits(deadline, memory))
        monkeypatch.setattr(verdict, "_workers", workers)
        verdict._ask.cache_clear()
        return workers

    return start


def boxed(answer: str) -> str:
    return f"The answer is \\boxed{{{answer}}}."


@pytest.mark.parametrize("fault, reason", [("hang", "timeout"), ("oom", "out_of_memory"), ("exit", "worker_died")])
def test_a_failing_worker_is_no_verdict_and_is_replaced(pool, fault, reason):
    workers = pool(fault)
    assert verify(boxed("5\\sqrt{2}"), HARD).score == 1.0
    start = time.monotonic()
    verdict = verify(boxed("5\\sqrt{2}\\clubsuit"), HARD)
    assert verdict.ignored and verdict.reason == reason
    assert time.monotonic() - start < workers.limits.deadline + 10  # at once, also on a busy machine
    assert verify(boxed("\\sqrt{2}\\cdot 5"), HARD).score == 1.0  # by another worker


def test_a_slow_computation_gives_up_before_it_is_killed(pool):
    workers = pool(deadline=6.0)  # far from the deadline, also on a busy machine
    assert verify(boxed("5\\sqrt{2}"), HARD).score == 1.0
    worker = workers._ready.queue[0]
    assert verify(boxed("\\prod_{k=1}^{10^7} k^{k}"), HARD).reason == "timeout"
    assert worker.alive() and workers._ready.queue == [worker]


def test_a_worker_that_is_not_itself_after_giving_up_is_replaced(pool):
    workers = pool("corrupt")
    assert verify(boxed("5\\sqrt{2}"), HARD).score == 1.0
    worker = workers._ready.queue[0]
    assert verify(boxed("5\\sqrt{2}\\clubsuit"), HARD).reason == "timeout"
    assert not worker.alive()
    assert verify(boxed("\\sqrt{2}\\cdot 5"), HARD).score == 1.0  # by another worker


def test_a_worker_killed_while_idle_costs_no_verdict(pool):
    workers = pool()
    assert verify(boxed("5\\sqrt{2}"), HARD).score == 1.0
    worker = workers._ready.queue[0]
    os.kill(worker.number, signal.SIGKILL)
    while worker.alive():
        time.sleep(0.01)
    assert verify(boxed("\\sqrt{2}\\cdot5"), HARD).score == 1.0


def test_where_the_process_that_they_are_forked_from_is_killed_others_come(pool):
    workers = pool(size=2)
    assert verify(boxed("5\\sqrt{2}"), HARD).score == 1.0
    while workers._ready.qsize() < 2:
        time.sleep(0.05)
    template, before = worker_pool.template, list(workers._ready.queue)
    os.kill(template._process.pid, signal.SIGKILL)
    while any(worker.alive() for worker in before):  # they have died with that
        time.sleep(0.01)
    assert verify(boxed("\\sqrt{2}\\cdot5"), HARD).score == 1.0
    others = template._process.pid
    for (
        worker
    ) in before:  # their numbers are nobody's or a stranger's: no reason to end for the process that is there now
        template.kill(worker.number)
    assert verify(boxed("\\sqrt{2}\\cdot 5"), HARD).score == 1.0 and template._process.pid == others


def test_for_a_worker_killed_at_work_another_is_asked(pool):
    workers = pool("hang", deadline=3)
    assert verify(boxed("5\\sqrt{2}"), HARD).score == 1.0
    pid = workers._ready.queue[0].number

    async def kill_it_at_work():
        verdict = asyncio.create_task(asyncio.to_thread(verify, boxed("\\clubsuit"), HARD))
        while workers._ready.queue:
            await asyncio.sleep(0.01)
        os.kill(pid, signal.SIGKILL)
        return await verdict

    assert asyncio.run(kill_it_at_work()).reason == "timeout"  # the other one's


def test_others_are_served_while_one_answer_hangs(pool):
    workers = pool("hang", deadline=3, size=2)
    while workers._ready.qsize() < 2:
        time.sleep(0.05)

    async def ask():
        start = time.monotonic()
        stuck = asyncio.create_task(asyncio.to_thread(verify, boxed("\\clubsuit"), HARD))
        await asyncio.sleep(0.1)
        cheap = [await asyncio.to_thread(verify, boxed(str(number)), "7") for number in range(50)]
        symbolic_one = await asyncio.to_thread(verify, boxed("\\sqrt{2}\\cdot5"), HARD)
        assert not stuck.done() and time.monotonic() - start < 3
        return cheap, symbolic_one, await stuck

    cheap, symbolic_one, stuck = asyncio.run(ask())
    assert [verdict.score for verdict in cheap] == [float(number == 7) for number in range(50)]
    assert symbolic_one.score == 1.0 and stuck.reason == "timeout"


def test_workers_that_cannot_start_are_no_verdict(pool, monkeypatch):
    monkeypatch.setattr(worker_pool, "template", Template())
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    pool()
    verdict = verify(boxed("5\\sqrt{2}"), HARD)
    assert verdict.ignored and verdict.reason == "worker_unavailable"
    assert verify(boxed("7"), "7").score == 1.0  # what needs no worker is not affected


def test_workers_die_with_the_process_that_asked():
    script = (
        "from real_openrlhf.rewards.verifier import verdict\n"
        "import os, sys\n"
        "assert verdict.verify(r'\\boxed{5\\sqrt{2}}', r'\\sqrt{50}').score == 1.0\n"
        "print(verdict._pool()._ready.queue[0].number, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    worker = int(done.stdout)
    for _ in range(200):
        if not Path(f"/proc/{worker}").exists() or "(zombie)" in Path(f"/proc/{worker}/status").read_text():
            return
        time.sleep(0.05)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its client")
