"""A step that goes far from the policy that drew its rollouts: told once, and by the threshold that the runs gave."""

import re
from pathlib import Path

import pytest

from real_openrlhf.hooks.controller.early_warning import FAR, EarlyWarning

MAP = Path(__file__).resolve().parents[2] / "examples/results/map/report/tables/collapse.md"


def test_it_is_told_once():
    watch = EarlyWarning()
    assert [bool(watch.see({"ppo_kl": far})) for far in (0, FAR, -1, FAR + 0.01, 1, 0, 2)] == [False] * 3 + [
        True,
        *[False] * 3,
    ]


def test_a_step_that_logs_nothing_of_it_or_no_number_is_no_alarm():
    watch = EarlyWarning()
    assert watch.see({"loss": 3.0}) is None and watch.see({"ppo_kl": float("nan")}) is None
    assert "0.31 nats a token" in watch.see({"ppo_kl": 0.3111})


def test_the_threshold_is_what_the_runs_of_the_map_say():
    (found,) = re.findall(r"^\| KL to the old policy \| ([\d.]+) \|", MAP.read_text(), re.MULTILINE)
    assert pytest.approx(float(found), abs=0.01) == FAR
