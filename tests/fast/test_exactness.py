"""Loss and gradient are the paper's in any layout: one rank in this process, two real gloo ranks."""

import math
from dataclasses import replace

import pytest
import torch
import toy_trainer as lab
from every import cells
from hypothesis import given, settings

from real_openrlhf.algorithm.step_plan import plan_rollouts

SMALL, LARGE = {}, {"max_group_size": 64, "max_groups": 4, "max_length": 12}
LEFT_OUT = {"epochs": 2, "groups_per_step": 1, "kl_old_coef": 0.0, "disco_kl_coef": 0.0, "skip": True}
ALWAYS = [(SMALL, {}, 1, 30), (SMALL, {}, 2, 30), (LARGE, {}, 1, 10), (LARGE, {}, 2, 6), (SMALL, LEFT_OUT, 2, 20)]
MORE = [(sizes, {}, ranks, count) for sizes in (SMALL, LARGE) for ranks, count in ((1, 200), (2, 100), (4, 40))]


@pytest.mark.parametrize("sizes, changes, ranks, examples", cells(ALWAYS + MORE, ALWAYS))
def test_loss_and_gradient_are_the_papers_in_any_layout(start_ranks, sizes, changes, ranks, examples):
    """LEFT_OUT: updates train nothing on one rank or on all."""
    train = start_ranks(ranks, "toy_trainer") if ranks > 1 else lambda _, case: [lab.train(case)]

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(case=lab.cases(**sizes))
    def exact(case):
        case = replace(case, **changes)
        lab.assert_exact(case, train("train", case))

    exact()


CASE = lab.Case((0,) * 4 + (1,) * 4, (1, 1, 0, 0) * 2, (3, 4, 2, 5, 1, 2, 6, 3), {"name": "real"}, size=1, epochs=2)


@pytest.mark.parametrize(("kept_tokens", "score_first"), [(math.inf, False), (0, True)])
def test_a_wave_is_scored_first_if_its_graphs_do_not_fit(kept_tokens, score_first):
    case = replace(CASE, depth=1000, kept_tokens=kept_tokens)
    _, later = plan_rollouts(lab.rollouts_of(case), lab.plan_settings(case, 1)).steps
    assert [wave.score_first for wave in later.waves] == [score_first]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_broken_score_on_one_rank_is_known_on_both(toy_ranks, bad):
    for scores, _ in toy_ranks("share", [([0], [0.1]), ([1], [bad])]):
        assert not torch.tensor(scores).isfinite().all()
