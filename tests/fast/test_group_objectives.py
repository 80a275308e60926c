"""Losses over a whole group, and what the seam offers them: naive float64 derivations, bounds, symmetries, rewards."""

import math

import pytest
import torch
import toy_trainer as lab
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import naive_group_loss

from real_openrlhf import check_whole_groups, real_policy_loss
from real_openrlhf.algorithm import trial
from real_openrlhf.algorithm.formulas import OBJECTIVES, Constant, Objective
from real_openrlhf.algorithm.objective import ObjectiveSettings, make_groups, score_weights
from real_openrlhf.algorithm.packing import Limit
from real_openrlhf.algorithm.step_plan import PlanSettings, Rollouts, plan_rollouts, rank_plans

quick = settings(max_examples=50, deadline=None, derandomize=True, database=None)
score = st.floats(-3, 3).map(lambda x: round(x, 3))
reward = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 7.0])  # exact in float32, in which rewards are kept


def weigh(name, scores, labels, values=None, **options):
    scores, labels = torch.tensor(scores, dtype=torch.float64), torch.tensor(labels)
    values = labels == 1 if values is None else torch.tensor(values)
    return score_weights(ObjectiveSettings(name, **options), scores, labels, torch.zeros_like(labels), values=values)


rows = st.lists(st.tuples(score, st.sampled_from([1, 0, -1, -2]), reward), min_size=2, max_size=12)


@pytest.mark.parametrize("uniform_groups", ["drop", "keep"])
@pytest.mark.parametrize("name", OBJECTIVES)
@quick
@given(rows=rows)
def test_loss_and_gradient_are_the_naive_ones(name, uniform_groups, rows):
    scores, labels, values = map(list, zip(*rows, strict=True))
    choices = ObjectiveSettings(name, uniform_groups=uniform_groups)
    leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in scores]
    loss, _ = naive_group_loss(choices, leaves, labels, values)
    expected = torch.autograd.grad(loss, leaves) if loss.requires_grad else [0.0] * len(leaves)
    got = weigh(name, scores, labels, values, uniform_groups=uniform_groups)
    assert got.loss.item() == pytest.approx(loss.item(), rel=1e-10, abs=1e-12)
    assert got.weights.tolist() == pytest.approx([float(g) for g in expected], rel=1e-9, abs=1e-12)


@quick
@given(rows=rows, shift=st.floats(-5, 5), eta=st.sampled_from([0.5, 1.0, 2.0]))
def test_listwise_gradient_is_p_minus_q(rows, shift, eta):
    scores, labels, values = map(list, zip(*rows, strict=True))
    found = weigh("listwise", scores, labels, values, own={"eta": eta})
    valid = [i for i, label in enumerate(labels) if label != -1]
    seen = torch.tensor([values[i] for i in valid], dtype=torch.float64)
    expected = torch.zeros(len(labels), dtype=torch.float64)
    if len(seen.unique()) > 1:
        p = torch.tensor([scores[i] for i in valid], dtype=torch.float64).softmax(0)
        expected[valid] = p - ((seen - seen.mean()) / seen.std(correction=0) / eta).softmax(0)
    torch.testing.assert_close(found.weights, expected, rtol=1e-9, atol=1e-12)
    assert found.weights.abs().max() < 1 and found.weights.sum().item() == pytest.approx(0, abs=1e-12)
    # The target knows neither the scale nor the origin of rewards, the loss not that of scores.
    moved = [s + shift for s in scores], labels, [4 * v - 2 for v in values]
    torch.testing.assert_close(
        weigh("listwise", *moved, own={"eta": eta}).weights, found.weights, rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("uniform_groups", ["drop", "keep"])
def test_a_group_of_equal_rewards_has_loss_0_and_stays_in_the_denominator(uniform_groups):
    labels, groups = torch.tensor([1, 0, 1, 1, 0]), torch.tensor([0, 0, 1, 1, 1])
    scores = torch.tensor([0.3, -0.2, 0.9, 0.1, 0.4], dtype=torch.float64)
    values = torch.tensor([1.0, 0.0, 0.3, 0.1 + 0.2, 0.3], dtype=torch.float64)  # equal in float32
    choices = ObjectiveSettings("listwise", uniform_groups=uniform_groups)
    found = score_weights(choices, scores, labels, groups, values=values)
    alone = score_weights(choices, scores[:2], labels[:2], groups[:2], values=values[:2])
    assert found.loss.item() == pytest.approx(alone.loss.item() / 2, abs=1e-15)
    assert found.weights.tolist() == pytest.approx([*(alone.weights / 2).tolist(), 0, 0, 0], abs=1e-15)


def test_values_decide_what_is_uniform_where_rewards_are_graded():
    labels, values = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0.1, 0.4, 0.2, 1.0, 1.0])
    groups = torch.tensor([0, 0, 0, 1, 1])
    assert (
        make_groups(ObjectiveSettings("listwise"), labels, groups, values).valid.tolist() == [True] * 3 + [False] * 2
    )
    assert not make_groups(ObjectiveSettings("real"), labels, groups, values).valid.any()
    alone = ObjectiveSettings(Objective(lambda s, g, c: -g.mean(s, g.positive), two_sides=False))
    assert make_groups(alone, labels, groups, values).valid.all()  # it has something to learn from any group
    with pytest.raises(ValueError, match="is an objective of graded rewards and got none"):
        make_groups(ObjectiveSettings("listwise"), labels, groups)


@quick
@given(st.lists(score, min_size=1, max_size=7), st.lists(score, min_size=1, max_size=7), st.sampled_from([0.1, 1.0]))
def test_conspo_pushes_as_much_as_it_pulls_and_a_margin_pulls_more(positives, negatives, tau):
    labels = [1] * len(positives) + [0] * len(negatives)
    weights = weigh("conspo", positives + negatives, labels, tau=tau).weights
    assert weights.sum().item() == pytest.approx(0, abs=1e-12)
    pull = weights[: len(positives)]
    assert (
        (pull <= 0).all() and (pull.abs() <= 1 / tau / len(positives) + 1e-12).all() and pull.sum() >= -1 / tau - 1e-12
    )
    wider = weigh("conspo", positives + negatives, labels, tau=tau, own={"margin": 0.5}).weights
    assert (wider[: len(positives)] <= pull + 1e-12).all()


def test_conspo_of_a_pair_is_the_logistic_loss_of_its_gap():
    assert weigh("conspo", [0.4, 0.1], [1, 0], tau=0.5, own={"margin": 0.2}).loss.item() == pytest.approx(
        math.log(1 + math.exp(-(0.4 - 0.1 - 0.2) / 0.5)), abs=1e-15
    )


@pytest.mark.parametrize("positives", range(9))
def test_maxrls_weights_sum_to_0_and_a_rare_right_answer_has_the_largest(positives):
    weights = weigh("maxrl", [0.3] * 8, [1] * positives + [0] * (8 - positives), uniform_groups="keep").weights
    rate = positives / 8
    expected = [-(1 / rate - 1) / 8] * positives + [1 / 8] * (8 - positives) if positives else [0.0] * 8
    assert weights.tolist() == pytest.approx(expected, abs=1e-15)
    assert weights.sum().item() == pytest.approx(0, abs=1e-15)


# What the seam offers


def length_weighted(scores, groups, settings):
    """Each score by its reward over its length."""
    return -groups.sum(scores * groups.values / groups.lengths ** settings["power"], groups.valid)


OWN = Objective(length_weighted, graded=True, settings={"power": Constant(1.0, "of the length", above=0)})


def batch():
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    new = old + 0.2 * torch.randn(6, 5, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([5, 1, 3, 2, 4, 0])
    return new.requires_grad_(), old, torch.arange(5) < lengths[:, None], lengths


def test_any_trainer_takes_graded_rewards_and_lengths():
    new, old, mask, lengths = batch()
    rewards = [0.25, -1.0, 0.5, 0.5, math.nan, 2.0]  # the last has no tokens
    assert trial.problem(ObjectiveSettings(OWN)) is None
    loss, metrics = real_policy_loss(new, old, mask, rewards, [0, 0, 0, 1, 1, 1], objective=OWN, own={"power": 2})
    means = ((new - old) * mask).sum(-1) / lengths.clamp(min=1)
    expected = -(means * torch.tensor(rewards) / lengths**2)[:3].sum() / 2  # the second group has one reward left
    assert loss.item() == pytest.approx(expected.item(), abs=1e-14)
    assert metrics["real/ignored"] == 2 / 6
    sums = real_policy_loss(new, old, mask, rewards, [0] * 6, objective="listwise")[0]
    assert (
        sums.item()
        != real_policy_loss(new, old, mask, rewards, [0] * 6, objective="listwise", own={"score": "log_ratio_old"})[
            0
        ].item()
    )
    with pytest.raises(ValueError, match="reward of sample 0 is infinite"):
        real_policy_loss(new, old, mask, [math.inf, *rewards[1:]], [0] * 6, objective="listwise")


def test_rewards_and_lengths_travel_with_the_plan():
    """On every rank, at the places of the labels, whatever the layout."""
    lengths, rewards = [4, 2, 5, 1, 3, 6, 2, 3], [0.5, 0.0, 1.0, 0.25, 0.0, 0.75, 0.5, 1.0]
    rollouts = Rollouts(
        groups=torch.arange(8) // 2,
        labels=(torch.tensor(rewards) > 0.5).long(),
        truncated=torch.zeros(8, dtype=torch.bool),
        lengths=[9 + n for n in lengths],
        actions=lengths,
        values=torch.tensor(rewards),
    )
    plan = plan_rollouts(rollouts, PlanSettings(groups_per_step=2, num_ranks=2, limit=Limit(1, None), seed=3))
    _, plans = rank_plans(plan, rollouts, ObjectiveSettings(OWN), 2, [])
    for own in plans:
        seen = [row for s in own.steps for row in zip(s.values.tolist(), s.lengths.tolist(), strict=True)]
        assert sorted(seen) == sorted(zip(rewards, lengths, strict=True))


@pytest.fixture(scope="module")
def two_ranks(start_ranks):
    return start_ranks(2, "toy_trainer")


def test_torn_groups_are_told(two_ranks):
    check_whole_groups(["a", "a", "b", "b"], size=2)
    check_whole_groups(torch.tensor([3, 3, 5]))
    with pytest.raises(ValueError, match="group 5 has 1 rollouts on rank 0, not 2. Call the loss once"):
        check_whole_groups(torch.tensor([3, 3, 5]), size=2)
    assert two_ranks("told_torn", [[0, 0], [1, 1]]) == ["", ""]
    for told in two_ranks("told_torn", [[0, 0, 1], [1, 2]]):
        assert told.startswith("group 1 is torn over ranks [0, 1]. Give all rollouts of a prompt to one rank")
    for told in two_ranks("told_torn", [[0, 0], [1]], 2):
        assert told.startswith("group 1 has 1 rollouts on rank 1, not 2.")
    for told in two_ranks("told_torn", [[0, 0], [0, 1]], 3, True):
        assert told.startswith("group 1 has 1 rollouts on all ranks, not 3.")
    assert two_ranks("told_torn", [[0, 0, 1], [0, 1, 1]], 3, True) == ["", ""]


@pytest.mark.parametrize("rows", [[[0, 1, 2, 6], [3, 4, 5, 7]], [[*range(8)], []]])
@pytest.mark.parametrize(
    "options",
    [{}, {"uniform_groups": "keep"}, {"objective": "listwise"}, {"objective": "bce", "bce_reduction": "mean"}],
)
def test_groups_over_ranks_have_the_loss_of_one_process(two_ranks, rows, options):
    """Ragged rollouts, an ignored one, one without tokens; or a rank without any. Ranks by themselves have another."""
    loss, gradient, metrics = lab.loss_of_part([[*range(8)]], **options)
    first, second = two_ranks("loss_of_part", rows, **options, over_ranks=True)
    for found in (first, second):
        torch.testing.assert_close(found[0], loss, rtol=0, atol=1e-15)
        assert found[2] == pytest.approx(metrics, abs=1e-15)
    torch.testing.assert_close((first[1] + second[1]) / 2, gradient, rtol=1e-12, atol=1e-15)  # as DDP averages
    alone = two_ranks("loss_of_part", rows, **options)
    assert (sum(part[1] for part in alone) / 2 - gradient).abs().max() > 1e-3
