"""Algorithms side by side: one Ray and one engine for all runs, the report at the end, and interrupts."""

import json

import psutil
from every import every

TIMES = ("time", "timing/")


def metrics(folder):
    """Every logged number but the times, of the evaluation before the first step and of the steps."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if line["phase"] == "train" or line["step"] == 0]
    return [{key: value for key, value in line.items() if not key.startswith(TIMES)} for line in lines]


def test_all_runs_and_their_report(compared):
    assert compared.code == 0, compared.output
    assert compared.statuses == ["finished"] * 2
    page = (compared.out / "report" / "index.html").read_text()
    assert all(label in page for label in ("REAL", "GRPO"))


def test_a_run_in_a_session_is_the_run_that_it_is_alone(compared, real):
    """The same seed gives the same numbers, bit for bit, whatever the engine has served before."""
    together = metrics(compared.run("real"))
    assert len(together) == 3
    assert together == metrics(real.folder)[:3]


def test_one_seed_gives_two_algorithms_the_same_prompts_updates_and_first_rollouts(compared):
    real, grpo = (metrics(compared.run(algo))[1:] for algo in ("real", "grpo"))
    for name in ("rollout/prompts_crc", "update/rollouts_crc"):
        assert [line[name] for line in real] == [line[name] for line in grpo]
    assert real[0]["rollout/pass_rate"] == grpo[0]["rollout/pass_rate"]
    # Then they are other policies; two of them may well be right equally often, so not by the pass rate.
    assert real[1]["entropy_loss"] != grpo[1]["entropy_loss"]


@every
def test_an_interrupt_ends_everything_and_says_how_to_go_on(interrupted):
    assert interrupted.code == 143, interrupted.output
    assert interrupted.statuses == ["finished", "failed"]
    assert "run the same command again for the missing runs" in interrupted.output
    assert not psutil.wait_procs(interrupted.below, timeout=60)[1]  # no Ray, no engine is left


@every
def test_the_same_command_goes_on(interrupted, continued):
    assert continued.code == 0, continued.output
    assert "2 runs of 2 steps, 1 already finished" in continued.output
    assert continued.written["real"] == interrupted.written["real"]  # what was finished was not touched
    assert continued.statuses == ["finished"] * 2
