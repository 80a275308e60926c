"""Loss and gradient are the paper's in any layout: one rank in this process, two real gloo ranks."""

import math
from dataclasses import replace

import pytest
import torch
import toy_trainer as lab
from hypothesis import HealthCheck, given, settings

from real_openrlhf.algorithm.formulas import OBJECTIVES
from real_openrlhf.algorithm.step_plan import plan_rollouts

quick = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@quick
@given(lab.cases())
def test_one_rank(case):
    lab.assert_exact(case, [lab.train(case)])


@quick
@given(case=lab.cases())
def test_two_ranks(toy_ranks, case):
    lab.assert_exact(case, toy_ranks("train", case))


@quick
@given(case=lab.cases())
def test_two_ranks_without_rollouts_that_have_no_gradient(toy_ranks, case):
    """In two epochs, with updates that train nothing on one rank or on all."""
    case = replace(case, epochs=2, groups_per_step=1, kl_old_coef=0.0, disco_kl_coef=0.0, skip=True)
    lab.assert_exact(case, toy_ranks("train", case))


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


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_broken_score_on_one_rank_is_known_on_both(toy_ranks, bad):
    for scores, _ in toy_ranks("share", [([0], [0.1]), ([1], [bad])]):
        assert not torch.tensor(scores).isfinite().all()
