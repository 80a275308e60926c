"""The script map/collapse.py: a collapse's step, hits, steps ahead and false alarms, on runs whose story is known."""

import runpy
from pathlib import Path

import pytest
from invented_runs import write_lines, write_run

from real_openrlhf.report.read_runs import read_runs
from real_openrlhf.report.table_forms import to_markdown

SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples/results/map/collapse.py"))
STEPS = 20


def write(root, seed, dies_at=None, warns_at=None, noisy=False):
    """The gradient norm leaps some steps before the pass rate falls; without a warning it stays where it was."""
    lines = []
    for step in range(1, STEPS + 1):
        dead = dies_at is not None and step >= dies_at
        norm = 9.0 if warns_at is not None and step >= warns_at else 3.0 if noisy and step == 4 else 1.0
        row = {"actor_grad_norm": norm, "rollout/pass_rate": 0.0 if dead else 0.6, "real/weight_cv": 0.1}
        lines.append({"phase": "train", "step": step, "real/weight_pos": 0.5, "real/weight_neg": 0.25, **row})
    ends = {0: 0.6, STEPS: 0.6 if dies_at is None else 0.1}
    lines += [{"phase": "eval", "step": step, "eval_x_pass1": end} for step, end in ends.items()]
    write_lines(write_run(root, "real", seed, 2, name=f"run-s{seed}"), lines)


@pytest.fixture
def runs(tmp_path):
    for seed in (1, 2, 3, 4):
        write(tmp_path, seed, dies_at=12, warns_at=8 - seed % 2)
    write(tmp_path, 5, noisy=True)
    write(tmp_path, 6, noisy=True)
    write(tmp_path, 7)
    write(tmp_path, 8, warns_at=10)  # an alarm, and nothing happens
    return read_runs([tmp_path])[0]


def test_the_step_of_a_collapse(runs):
    assert [SCRIPT["Story"].of(run).collapse for run in runs] == [12] * 4 + [float("inf")] * 4
    for rates, step in (([0.1, 0.5, 0.6, 0.0, 0.0, 0.6, 0.6, 0.6, 0.0, 0.0, 0.0], 9), ([0.5, 0.5], 2)):
        rows = {step: {"rollout/pass_rate": rate} for step, rate in enumerate(rates, 1)}
        assert SCRIPT["collapse_of"](rows) == step


@pytest.mark.parametrize(
    "threshold, ahead, false", [(2.0, [5, 4, 5, 4], 3), (3.0, [5, 4, 5, 4], 1), (9.0, [], 0), (0.5, [11] * 4, 4)]
)
def test_hits_steps_ahead_and_false_alarms(runs, threshold, ahead, false):
    one = SCRIPT["predict"]([SCRIPT["Story"].of(run) for run in runs], "gradient norm", threshold)
    assert (one.ahead, one.collapses, one.false_alarms, one.others) == (ahead, 4, false, 4)


def test_thresholds_are_of_the_odd_seeds_and_the_table_of_the_even_ones(runs):
    lines = to_markdown(SCRIPT["table"](runs)).splitlines()
    assert lines[4] == "| gradient norm | 3 | 2 of 2 | 4 | 1 of 2 |"  # the best first
    assert not any("score deviation" in line for line in lines)  # nobody logged it
