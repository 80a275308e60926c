"""Loss and gradient are the paper's in any layout: one rank in this process, two real gloo ranks."""

import math
from dataclasses import replace

import pytest
import torch
import toy_trainer as lab
from hypothesis import HealthCheck, given, settings

from real_openrlhf.algorithm.formulas import OBJECTIVES
from real_openrlhf.algorithm.schedule import Wave
from real_openrlhf.algorithm.step_plan import plan_rollouts

quick = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@pytest.fixture(scope="module")
def two_ranks(start_ranks):
    return start_ranks(2, "toy_trainer")


@quick
@given(lab.cases())
def test_one_rank(case):
    lab.assert_exact(case, [lab.train(case)])


@quick
@given(case=lab.cases())
def test_two_ranks(two_ranks, case):
    lab.assert_exact(case, two_ranks("train", case))


@quick
@given(case=lab.cases())
def test_weights_are_the_same_without_rollouts_that_have_no_gradient(two_ranks, case):
    """After every update of two epochs, to 1e-10; updates that train nothing on one rank or on all are among them."""
    case = replace(case, epochs=2, groups_per_step=1, kl_old_coef=0.0, disco_kl_coef=0.0)
    for less, more in zip(*(two_ranks("train", replace(case, skip=skip)) for skip in (True, False)), strict=True):
        for one, other in zip(less, more, strict=True):
            torch.testing.assert_close(one["loss"], other["loss"], rtol=1e-10, atol=1e-10)
            for name in ("parameters", "gradients"):
                torch.testing.assert_close(one[name], other[name], rtol=1e-10, atol=1e-10)


CASE = lab.Case((0,) * 4 + (1,) * 4, (1, 1, 0, 0) * 2, (3, 4, 2, 5, 1, 2, 6, 3), {"name": "real"}, size=1, epochs=2)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_with_an_ignored_rollout(name):
    own = {setting: one.choices[-1] for setting, one in OBJECTIVES[name].settings.items() if one.choices}
    case = replace(CASE, labels=(1, 1, 0, -1) * 2, settings={"name": name, "own": own})
    lab.assert_exact(case, [lab.train(case)])


@pytest.mark.parametrize(("kept_tokens", "score_first"), [(math.inf, False), (0, True)])
def test_a_wave_is_scored_first_if_its_graphs_do_not_fit(kept_tokens, score_first):
    case = replace(CASE, depth=1000, kept_tokens=kept_tokens)
    _, later = plan_rollouts(lab.rollouts_of(case), lab.plan_settings(case, 1)).steps
    assert [wave.score_first for wave in later.waves] == [score_first]


TURNS = (frozenset(), frozenset({1, 2}), frozenset({0}), frozenset({1, 3}), *[frozenset()] * 4)


def test_of_several_turns_only_the_policys_own_tokens_count():
    """Whatever an environment's tokens are worth nothing changes; a token that changes sides changes the loss."""
    case = replace(CASE, environment=TURNS)
    first, second = lab.train(case)
    trainer = lab.Trainer(case, 0, 1)
    for log_probs in (trainer.toy.old, trainer.toy.ref):
        log_probs[trainer.toy.mask.logical_not()] = 1e3  # it was nan
    for one, other in zip(trainer.run(), (first, second), strict=True):
        assert one["loss"] == other["loss"] and all(map(torch.equal, one["gradients"], other["gradients"]))
    _, changed = lab.train(replace(case, environment=(*TURNS[:1], frozenset({1}), *TURNS[2:])))
    assert changed["loss"] != second["loss"]
    with pytest.raises(AssertionError):
        lab.assert_exact(CASE, [[first, second]])  # a mask of one span is another loss


def test_a_group_torn_over_two_waves_is_caught():
    """The grid can fail: half a group's scores make other weights, and so another gradient."""
    lab.assert_exact(CASE, [lab.Trainer(CASE, 0, 1).run()])
    plan = plan_rollouts(lab.rollouts_of(CASE), lab.plan_settings(CASE, 1))
    first, second = plan.steps
    torn = [
        Wave([[micro_batch] for micro_batch in wave.ranks[0]][at : at + 1], wave.score_first)
        for wave in second.waves
        for at in range(wave.depth)
    ]
    assert len(torn) > len(second.waves)
    records = lab.Trainer(CASE, 0, 1).run(replace(plan, steps=[first, replace(second, waves=torn)]))
    with pytest.raises(AssertionError):
        lab.assert_exact(CASE, [records])


def test_every_rank_knows_every_score(two_ranks):
    third = float(torch.tensor(1 / 3))
    for tables in ([([2], [0.25]), ([1, 0], [-0.5, 1 / 3])], [([], []), ([0, 2, 1], [1 / 3, 0.25, -0.5])]):
        for scores, total in two_ranks("share", tables):
            assert scores == [third, -0.5, 0.25]
            assert total == 2


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_broken_score_on_one_rank_is_known_on_both(two_ranks, bad):
    for scores, _ in two_ranks("share", [([0], [0.1]), ([1], [bad])]):
        assert not torch.tensor(scores).isfinite().all()
