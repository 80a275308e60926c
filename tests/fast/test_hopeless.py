"""A run that cannot learn any more: what ends it, after how many steps, and what does not."""

from types import SimpleNamespace

import pytest

from real_openrlhf.hooks.controller.hopeless import HopelessCounter, HopelessRunError

FINE = {"rollout/solve_all": 0.5, "rollout/solve_none": 0.25, "rollout/ignored": 0.5, "rollout/truncated_rate": 0.99}
HOPELESS = {
    "no prompt has right and wrong responses": {"rollout/solve_all": 0.25, "rollout/solve_none": 0.75},
    "all responses are cut": {"rollout/truncated_rate": 1.0},
    "no verdict on more than half": {"rollout/ignored": 0.51},
    "entropy is gone": {"entropy_loss": 1e-5},
}


def hope(limit=4, loss="real", uniform="drop", hopeless="fail", labels=None) -> HopelessCounter:
    return HopelessCounter(
        SimpleNamespace(
            train=SimpleNamespace(hopeless_steps=limit, hopeless=hopeless),
            actor=SimpleNamespace(policy_loss_type=loss),
            algo=SimpleNamespace(real=SimpleNamespace(uniform_groups=uniform, objective="real", labels=labels)),
        )
    )


def test_a_step_that_trained_no_token_has_no_entropy_and_is_no_dead_policy():
    assert ends_after(hope(), [FINE] * 10) == (None, [])


def ends_after(hope: HopelessCounter, steps: list[dict]) -> tuple[int | None, list[int]]:
    """(the step that it ends with, the steps that warn)."""
    warned = []
    for step, values in enumerate(steps, 1):
        if hope.see(values):
            warned.append(step)
        try:
            hope.check()
        except HopelessRunError:
            return step, warned
    return None, warned


@pytest.mark.parametrize("reason", HOPELESS)
def test_it_is_warned_of_once_and_then_ends_the_run(reason):
    watch = hope()
    assert ends_after(watch, [FINE] * 3 + [FINE | HOPELESS[reason]] * 9) == (7, [5])
    with pytest.raises(HopelessRunError, match=f"for 4 steps .*{reason}.*hopeless_steps 0"):
        watch.check()


@pytest.mark.parametrize("reason", HOPELESS)
def test_one_good_step_is_hope(reason):
    bad = FINE | HOPELESS[reason]
    assert ends_after(hope(), [bad, bad, bad, FINE] * 5)[0] is None


def test_zero_is_never():
    assert ends_after(hope(0), [HOPELESS["all responses are cut"]] * 50) == (None, [])


def test_uniform_groups_that_are_trained_on_are_no_reason():
    bad = [FINE | HOPELESS["no prompt has right and wrong responses"]] * 9
    assert ends_after(hope(uniform="keep"), bad)[0] is None
    assert ends_after(hope(labels="mine.py:rule"), bad)[0] is None  # its groups are not the verifier's
    assert ends_after(hope(uniform="keep", loss="ppo"), bad)[0] == 4  # that flag is REAL's


def test_different_reasons_do_not_add_up():
    first, second = (FINE | HOPELESS[reason] for reason in list(HOPELESS)[:2])
    assert ends_after(hope(), [first, first, second, second, first, second])[0] is None


def test_a_sweep_ends_such_a_run_as_if_it_were_over():
    watch, bad = hope(hopeless="end"), HOPELESS["all responses are cut"]
    seen = []
    for step in (FINE, bad, bad, bad, bad):
        watch.see(step)
        watch.check()  # no error
        seen.append(watch.ends_run)
    assert seen == [False] * 4 + [True]
    assert not hope(0, hopeless="end").ends_run and not hope().ends_run
