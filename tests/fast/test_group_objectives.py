"""Losses over a whole group, and what the seam offers them: naive float64 derivations, bounds, symmetries, rewards."""

import json
import math
from pathlib import Path

import loss_jobs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import NAIVE, NAIVE_TOKENS, naive_group_loss

from real_openrlhf import check_whole_groups, real_policy_loss
from real_openrlhf.algorithm import token_update, validate_objective
from real_openrlhf.algorithm.formulas import OBJECTIVES, Constant, Objective
from real_openrlhf.algorithm.groups import Groups, RolloutBatch, TrainingProgress
from real_openrlhf.algorithm.objective import make_groups, score_weights
from real_openrlhf.algorithm.settings import ObjectiveSettings, find
from real_openrlhf.algorithm.step_plan import PlanRules, plan_rollouts
from real_openrlhf.algorithm.token_update import TokenGroup
from real_openrlhf.algorithm.update import Coefficients, Forward, GroupUpdate

quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)
score = st.floats(-3, 3).map(lambda x: round(x, 3))
reward = st.sampled_from([-1.0, 0.0, 0.25, 0.5, 1.0, 7.0])  # exact in float32, in which rewards are kept
rows = st.lists(st.tuples(score, st.sampled_from([1, 0, -1, -2]), reward), min_size=2, max_size=12)


def values_of(setting: Constant):
    more = 1 if setting.whole else 0.2 if setting.below <= 1 else 0.5
    return st.sampled_from(setting.choices or (setting.default, setting.default + more))


FOLDER = Path(__file__).parents[2] / "examples" / "objectives"
LISTWISE = f"{FOLDER}/listwise.py:listwise"
IN_FILES = [f"{FOLDER}/{name.replace(':', '.py:')}" for name in NAIVE if ":" in name]
FROZEN = json.loads((Path(__file__).parents[1] / "data/objective_weights.json").read_text())


@pytest.mark.parametrize("name", [*OBJECTIVES, *IN_FILES])
@quick
@given(rows, st.sampled_from([None, 0.1, 1.0]), st.sampled_from(["zero_loss", "keep"]), st.data())
def test_loss_and_gradient_are_the_naive_ones(name, rows, tau, uniform_groups, data):
    own = {setting: data.draw(values_of(one)) for setting, one in find(name).settings.items()}
    choices = ObjectiveSettings(name, uniform_groups, own | ({"tau": tau} if "tau" in own else {}))
    scores, labels, values = map(list, zip(*rows, strict=True))
    leaves = [torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in scores]
    loss, counted = naive_group_loss(choices, leaves, labels, values)
    loss = loss / max(counted, 1) if own.get("reduction") == "mean" else loss
    expected = torch.autograd.grad(loss, leaves) if loss.requires_grad else [0.0] * len(leaves)
    table = RolloutBatch(torch.tensor(labels), torch.zeros(len(rows), dtype=torch.long), torch.tensor(values))
    got = score_weights(
        choices, torch.tensor(scores, dtype=torch.float64), table, training_progress=TrainingProgress(step=3)
    )
    assert got.loss.item() == pytest.approx(loss.item(), rel=1e-10, abs=1e-12)
    assert got.weights.tolist() == pytest.approx([float(g) for g in expected], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", FROZEN["cases"], ids=lambda case: " ".join(map(str, case[:3])))
def test_a_method_that_became_a_file_weighs_as_it_did_built_in(case):
    """The loss and the weights, or the tokens' weights and which of them are clipped."""
    name, own, uniform_groups, expected = case
    choices = ObjectiveSettings(f"{FOLDER}/{name}", uniform_groups, own)
    if choices.objective.of_tokens:
        columns = (torch.tensor(column, dtype=torch.float64) for column in FROZEN["tokens"])
        log_ratio, advantages = torch.broadcast_tensors(*columns)
        weights, alone = (choices.objective.loss(log_ratio, a, None, own) for a in (advantages, advantages.sign()))
        found = [*weights.flatten().tolist(), *choices.objective.clipped(alone, log_ratio).double().flatten().tolist()]
    else:
        *ints, values, lengths, scores = (torch.tensor(column, dtype=torch.float64) for column in FROZEN["rollouts"])
        table = RolloutBatch(*(column.long() for column in ints), values, lengths)
        weighed = score_weights(choices, scores, table, training_progress=TrainingProgress(step=5, steps=10))
        found = [weighed.loss.item(), *weighed.weights.tolist()]
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("name", NAIVE_TOKENS)
@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("rate", [0.25, 0.875, 1.0])
def test_a_token_loss_in_a_file_has_its_papers_gradient(name, right, rate):
    """Of answers of 1 to 6 tokens, also with settings that are not the defaults."""
    path, draw = f"{FOLDER}/{name.replace(':', '.py:')}", torch.Generator().manual_seed(5)
    new, old, drawn = (torch.randn(5, 6, generator=draw, dtype=torch.float64) * spread for spread in (0.6, 0.3, 0.6))
    mask = torch.arange(6) < torch.tensor([[6], [1], [3], [5], [2]])
    advantages = torch.full_like(new, 0.8 if right else -1.3)
    for factor in (1.0, 0.7):
        own = {s: one.default * factor for s, one in find(path).settings.items()}
        choices = ObjectiveSettings(
            path, settings={s: 3 if s == "k" and factor < 1 else value for s, value in own.items()}
        )
        column = torch.ones(5, 1, dtype=torch.float64)
        known = column * right > 0, column * right, column * rate, column * 8, old, old - drawn, None
        group = TokenGroup(choices, *known)
        found = choices.objective.loss(new - old, advantages, mask, group)
        for row in range(5):
            leaf = new[row, mask[row]].requires_grad_()
            columns = leaf, old[row, mask[row]], drawn[row, mask[row]]
            loss = sum(NAIVE_TOKENS[name](*columns, float(advantages[row, 0]), right, rate, choices))
            assert found[row, mask[row]].tolist() == pytest.approx(
                (-torch.autograd.grad(loss, leaf)[0]).tolist(), rel=1e-9, abs=1e-12
            )


def test_a_token_loss_reads_the_reference_that_it_declares():
    """-r (A - coef (log pi_old - log pi_ref)) has this slope, and a file that does not declare it is told."""
    new, old, reference = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    choices, one = ObjectiveSettings(f"{FOLDER}/reverse_kl.py:reverse_kl"), torch.ones(2, 1)
    known = choices, one > 0, one, one, one, old, None
    found = choices.objective.loss(new - old, 0.7 * torch.ones_like(new), old > -9, TokenGroup(*known, reference))
    assert torch.allclose(found, (new - old).exp() * (0.7 - 0.1 * (old - reference)), rtol=1e-12)
    assert choices.objective.needs_reference and validate_objective.objective_problem(choices) is None
    with pytest.raises(ValueError, match="reads_reference=True"):
        TokenGroup(*known, None).reference  # noqa: B018


def test_a_token_loss_is_told_the_share_and_number_of_graded_responses_of_each_prompt():
    table = RolloutBatch(torch.tensor([1, 0, -1, -2, 1, -1]), torch.tensor([0, 0, 0, 0, 1, 2]))
    _, _, rate, size = token_update.rollout_columns(Groups.from_batch(table)).tolist()
    assert rate == pytest.approx([1 / 3] * 4 + [1, 0]) and size == [3] * 4 + [1, 0]


@pytest.mark.parametrize("uniform_groups", ["zero_loss", "keep"])
def test_a_group_of_equal_rewards_has_loss_0_and_stays_in_the_denominator(uniform_groups):
    labels, groups = torch.tensor([1, 0, 1, 1, 0]), torch.tensor([0, 0, 1, 1, 1])
    scores = torch.tensor([0.3, -0.2, 0.9, 0.1, 0.4], dtype=torch.float64)
    values = torch.tensor([1.0, 0.0, 0.3, 0.1 + 0.2, 0.3], dtype=torch.float64)  # equal in float32
    choices = ObjectiveSettings(LISTWISE, uniform_groups=uniform_groups)
    table = RolloutBatch(labels, groups, values)
    found, alone = score_weights(choices, scores, table), score_weights(choices, scores[:2], table.select([0, 1]))
    assert found.loss.item() == pytest.approx(alone.loss.item() / 2, abs=1e-15)
    assert found.weights.tolist() == pytest.approx([*(alone.weights / 2).tolist(), 0, 0, 0], abs=1e-15)
    of_one_side = Groups.from_batch(RolloutBatch(labels[[1, 2, 3]], torch.zeros(3), values[[1, 3, 3]]))
    assert of_one_side.zscores(of_one_side.values, of_one_side.positive).tolist() == [0, 0, 0]


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
    assert validate_objective.objective_problem(ObjectiveSettings(OWN)) is None
    loss, metrics = real_policy_loss(new, old, mask, rewards, [0, 0, 0, 1, 1, 1], objective=OWN, settings={"power": 2})
    _, same = real_policy_loss(new, old, mask, rewards, [0, 0, 0, 1, 1, 1], objective=OWN, own={"power": 2})
    assert metrics == same  # by its old name
    means = ((new - old) * mask).sum(-1) / lengths.clamp(min=1)
    expected = -(means * torch.tensor(rewards) / lengths**2)[:3].sum() / 2  # the second group has one reward left
    assert loss.item() == pytest.approx(expected.item(), abs=1e-14)
    assert metrics["real/frac_unlabelled"] == 2 / 6
    with pytest.raises(ValueError, match="is an objective of graded rewards and got none"):
        make_groups(ObjectiveSettings(LISTWISE), RolloutBatch(torch.tensor([0, 1]), torch.zeros(2)))
    with pytest.raises(ValueError, match="reward of sample 0 is inf: use finite rewards"):
        real_policy_loss(new, old, mask, [math.inf, *rewards[1:]], [0] * 6, objective=LISTWISE)


def test_rewards_and_lengths_travel_with_the_plan():
    """On every rank, at the places of the labels, whatever the layout."""
    lengths, rewards = [4, 2, 5, 1, 3, 6, 2, 3], [0.5, 0.0, 1.0, 0.25, 0.0, 0.75, 0.5, 1.0]
    rollouts = RolloutBatch(
        labels=(torch.tensor(rewards) > 0.5).long(),
        groups=torch.arange(8) // 2,
        values=torch.tensor(rewards),
        lengths=torch.tensor(lengths),
        total_lengths=torch.tensor(lengths) + 9,
    )
    rules = PlanRules(groups_per_update=2, num_ranks=2, size=1, max_tokens=None, seed=3, steps=9)
    updates = plan_rollouts(rollouts, rules, rollout_step=4).updates
    tables = [update.batch.select(update.rollouts) for update in updates]
    seen = [row for own in tables for row in zip(own.values.tolist(), own.lengths.tolist(), strict=True)]
    assert sorted(seen) == sorted(zip(rewards, lengths, strict=True))
    # the fifth step, in a resumed run too
    assert {update.training_progress for update in updates} == {TrainingProgress(step=5, steps=9)}


def test_a_rollouts_weight_takes_the_clipped_factor_of_its_whole_answer():
    lengths, labels = [3, 1, 2, 2], torch.tensor([1, 0, 0, 1])
    rollouts = RolloutBatch(labels, torch.zeros(4), None, torch.tensor(lengths), torch.tensor([5] * 4))
    (step,) = plan_rollouts(rollouts, PlanRules(1, 1, 2, None, seed=0)).updates
    table = GroupUpdate(ObjectiveSettings(), step, Coefficients(tis_cap=1.2), 1, "cpu", None, sampled=False)
    leaf, mask = torch.zeros(4, 3, requires_grad=True), torch.arange(3) < torch.tensor(lengths)[:, None]
    sampler = torch.tensor([[0.1, -0.2, 0.3], [-0.4, 9, 9], [-0.1, -0.05, 9], [0.5, 0.2, 9]])
    for rows in (torch.tensor(rows) for wave in step.waves for rows in wave.ranks[0]):
        columns = (leaf[rows], leaf[rows].detach(), None, sampler[rows])
        table.loss(Forward("log_ratio_old", rows, mask[rows], *columns)).backward()
    plain = score_weights(ObjectiveSettings(), torch.zeros(4), RolloutBatch(labels, torch.zeros(4))).weights
    factors = [min(math.exp(-(sampler[row, :length].sum())), 1.2) for row, length in enumerate(lengths)]
    assert [round(factor, 3) for factor in factors] == [0.819, 1.2, 1.162, 0.497]
    for row, length in enumerate(lengths):
        expected = [float(plain[row]) * factors[row] / length] * length + [0.0] * (3 - length)
        assert leaf.grad[row].tolist() == pytest.approx(expected, rel=1e-6)
    sums = {name: float(table.meter.sums[name]) for name in GroupUpdate.sums}
    assert sums == pytest.approx({"factors": sum(factors), "clipped_factors": 1, "rollouts": 4})


def test_torn_groups_are_told(loss_ranks):
    check_whole_groups(["a", "a", "b", "b"], size=2)
    check_whole_groups(torch.tensor([3, 3, 5]))
    with pytest.raises(ValueError, match="group 5 has 1 responses on rank 0, not 2. Call the loss once"):
        check_whole_groups(torch.tensor([3, 3, 5]), size=2)
    assert loss_ranks("told_torn", [[0, 0], [1, 1]]) == ["", ""]
    for told in loss_ranks("told_torn", [[0, 0, 1], [1, 2]]):
        assert told.startswith("group 1 is split over ranks [0, 1]. Give all responses of a prompt to one rank")
    for told in loss_ranks("told_torn", [[0, 0], [1]], 2):
        assert told.startswith("group 1 has 1 responses on rank 1, not 2.")
    for told in loss_ranks("told_torn", [[0, 0], [0, 1]], 3, True):
        assert told.startswith("group 1 has 1 responses on all ranks, not 3.")
    assert loss_ranks("told_torn", [[0, 0, 1], [0, 1, 1]], 3, True) == ["", ""]


@pytest.mark.parametrize("rows", [[[0, 1, 2, 6], [3, 4, 5, 7]], [[*range(8)], []]])
@pytest.mark.parametrize(
    "options",
    [{}, {"uniform_groups": "keep"}, {"objective": LISTWISE}, {"objective": "bce", "bce_reduction": "mean"}],
)
def test_groups_over_ranks_have_the_loss_of_one_process(loss_ranks, rows, options):
    """Ragged rollouts, an ignored one, one without tokens; or a rank without any. Ranks by themselves have another."""
    loss, gradient, metrics = loss_jobs.loss_of_part([[*range(8)]], **options)
    first, second = loss_ranks("loss_of_part", rows, **options, over_ranks=True)
    for found in (first, second):
        torch.testing.assert_close(found[0], loss, rtol=0, atol=1e-15)
        assert found[2] == pytest.approx(metrics, abs=1e-15)
    torch.testing.assert_close((first[1] + second[1]) / 2, gradient, rtol=1e-12, atol=1e-15)  # as DDP averages
    alone = loss_ranks("loss_of_part", rows, **options)
    assert (sum(part[1] for part in alone) / 2 - gradient).abs().max() > 1e-3
