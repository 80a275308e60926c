"""Answers made to hang or swamp a verifier: each is answered, and others are served meanwhile."""

import asyncio
import logging
import time

import hostile_inputs
import pytest

from real_openrlhf.rewards.verifier import verdict as verifier
from real_openrlhf.rewards.verifier.pool import ALGEBRA, Limits, WorkerPool

RIGHT_BY_RULE = ("signs", "right to left", "dotless numerals", "10,000 boxes")  # -(-7), unseen marks, another script


@pytest.fixture(scope="module")
def verdicts():
    """Every hostile input, two at a time, asked by a process whose event loop serves others."""
    before, verifier._workers = verifier._workers, {ALGEBRA: WorkerPool(2, Limits(deadline=2.0, memory=1024))}
    logging.getLogger("real_openrlhf.verifier").setLevel(logging.CRITICAL)
    assert verifier.verify("\\boxed{\\sqrt{8}}", "2\\sqrt{2}").reason == "algebra"  # the workers are up
    beats = 0

    async def others():
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    async def ask(inputs, results):
        for name, response, gold in inputs:
            start = time.monotonic()
            verdict = await asyncio.to_thread(verifier.verify, response, gold)
            results.append((name, gold, verdict, time.monotonic() - start))

    async def ask_all():
        other, results = asyncio.create_task(others()), []
        inputs = iter(hostile_inputs.HOSTILE)  # whoever is free takes the next
        await asyncio.gather(ask(inputs, results), ask(inputs, results))
        other.cancel()
        return results

    start = time.monotonic()
    results = asyncio.run(ask_all())
    yield results, beats, time.monotonic() - start
    logging.getLogger("real_openrlhf.verifier").setLevel(logging.NOTSET)
    verifier._workers = before


def test_each_is_answered_by_the_deadline(verdicts):
    results, _, _ = verdicts
    # The deadline is 2 s; beside other work on the machine, new workers for two killed ones take their time.
    assert [(name, seconds) for name, _, _, seconds in results if seconds > 30] == []


def test_none_is_taken_for_right(verdicts):
    results, _, _ = verdicts
    taken = {name.removesuffix(", for a number") for name, _, verdict, _ in results if verdict.score == 1.0}
    assert taken <= set(RIGHT_BY_RULE)


def test_nearly_all_get_a_verdict(verdicts):
    results, _, _ = verdicts
    ignored = [(name, verdict.reason) for name, _, verdict, _ in results if verdict.ignored]
    assert {reason for _, reason in ignored} <= {"timeout", "out_of_memory", "worker_died"}
    assert len(ignored) <= 0.1 * len(results), ignored


def test_others_are_served(verdicts):
    _, beats, seconds = verdicts
    assert beats > 0.5 * seconds / 0.01  # the loop that asks went on; its longest stall is in the speed benchmark
