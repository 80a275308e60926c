"""Weights of a score table, real_policy_loss for any trainer, weighted tokens, KL terms: against naive formulas."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import naive_losses, naive_score, weights_of_real

from real_openrlhf import group_weights, real_policy_loss
from real_openrlhf.algorithm.formulas import KNOWN_AT_OLD, OBJECTIVES, SCORES, Objective
from real_openrlhf.algorithm.groups import IGNORED, POSITIVE, RolloutBatch
from real_openrlhf.algorithm.metrics import GROUP_METRICS
from real_openrlhf.algorithm.objective import rollout_scores, score_weights
from real_openrlhf.algorithm.policy_loss import RealPolicyLoss, kl_old
from real_openrlhf.algorithm.settings import ObjectiveSettings

NAN = math.nan
quick = settings(max_examples=20, deadline=None, derandomize=True, database=None)
score = st.floats(-5, 5)


def weigh(scores, labels, name="real", **own):
    """One group, in float64."""
    scores, labels = torch.as_tensor(scores, dtype=torch.float64), torch.as_tensor(labels)
    table = RolloutBatch(labels, torch.zeros_like(labels), labels == POSITIVE)
    return score_weights(ObjectiveSettings(name, settings=own), scores, table)


@quick
@given(
    st.lists(score, min_size=1, max_size=63),
    st.lists(score, min_size=1, max_size=63),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_proposition_5_1_closed_form_and_bound(positives, negatives, tau):
    weights = weigh(positives + negatives, [1] * len(positives) + [0] * len(negatives), tau=tau).weights
    sides = weights_of_real(*(torch.tensor(side, dtype=torch.float64) for side in (positives, negatives)), tau)
    assert weights.tolist() == pytest.approx([weight for side in sides for weight in side], rel=1e-10, abs=1e-14)
    assert (weights[: len(positives)] < 0).all() and (weights[len(positives) :] > 0).all()
    # strict, until exp(-|s|/tau) is lost in float64's last digit
    assert all(abs(weight) < 1 / tau or (tau == 0.1 and abs(weight) == 1 / tau) for weight in weights.tolist())


@pytest.mark.parametrize("uniform_groups", ["zero_loss", "keep"])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(
    "labels", [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [-1, -1, -1, -1], [1, 0, -1, -2], [1], [-1], []]
)
def test_extreme_scores_in_float32(name, labels, uniform_groups):
    settings = ObjectiveSettings(name, uniform_groups=uniform_groups)
    labels = torch.tensor(labels, dtype=torch.long)
    for scores in ([500.0, -500.0, 500.0, -500.0], [-500.0, -500.0, 500.0, 500.0], [500.0] * 4, [-500.0] * 4):
        table = RolloutBatch(labels, torch.zeros_like(labels), labels == POSITIVE)
        weighed = score_weights(settings, torch.tensor(scores[: len(labels)]), table)
        assert weighed.weights.dtype == torch.float32
        assert weighed.loss.isfinite() and weighed.weights.isfinite().all()
        assert (weighed.weights[labels == IGNORED] == 0).all()


def test_a_positive_at_minus_500_is_pulled_with_1_over_tau():
    # positive at -500: log(1 + e^1000) = 1000, pulled with 1/tau; negative at -500: nothing left to do
    weighed = weigh([-500.0, -500.0], [1, 0])
    assert weighed.loss.item() == 1000.0
    assert weighed.weights.tolist() == [-2.0, 0.0]


def test_an_ignored_rollout_changes_nothing_for_the_others():
    for name in OBJECTIVES:
        for bad in (0.7, 500.0, math.nan, math.inf):
            without, with_it = weigh([0.1, -0.2], [1, 0], name=name), weigh([0.1, bad, -0.2], [1, -1, 0], name=name)
            assert with_it.loss.item() == without.loss.item()
            assert with_it.weights.tolist() == [without.weights[0].item(), 0.0, without.weights[1].item()]


def test_what_objectives_need_is_what_they_do():
    assert {name for name, o in OBJECTIVES.items() if o.needs_reference} == {"trpa"}
    for name, needs in OBJECTIVES.items():
        table = ([0.1, -0.2, 0.4], [1, 0, 0])
        usual = weigh(*table, name=name).loss.item()
        for setting, one in needs.settings.items():
            other = one.choices[-1] if one.choices else one.default + 0.5
            if setting != "score":  # which is read outside of the formula
                assert weigh(*table, name=name, **{setting: other}).loss.item() != usual, (name, setting)


@pytest.mark.parametrize("kind", SCORES)
def test_scores_of_ragged_rollouts(kind):
    new = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, math.nan, -math.inf], [math.nan] * 3], dtype=torch.float64)
    old = torch.tensor([[-1.5, -1.0, -2.0], [-1.0, math.inf, math.nan], [math.nan] * 3], dtype=torch.float64)
    ref, drawn = old - 0.25, old + 0.5
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]])
    new.requires_grad_()
    scores = rollout_scores(kind, new, old, ref, mask, drawn)
    columns = [[one[0], one[1, :1], one[2, :0]] for one in (new, old, ref, drawn)]
    expected = torch.stack([naive_score(kind, *own) for own in zip(*columns, strict=True)])
    torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-15)
    found, wanted = (torch.autograd.grad(one.sum(), new)[0] for one in (scores, expected))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-15)


# real_policy_loss for any trainer


@pytest.fixture
def batch():
    """Eight rollouts of three prompts, interleaved and ragged; padding holds nan."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([5, 1, 3, 6, 2, 4, 6, 1])
    mask = torch.arange(6) < lengths[:, None]
    old = torch.randn(8, 6, dtype=torch.float64, generator=generator) - 2
    new = (old + 0.3 * torch.randn(8, 6, dtype=torch.float64, generator=generator)).where(mask, NAN)
    rewards = [1, 0, 0, 1, NAN, 0, 1, 1]
    groups = [4, 9, 4, 9, 4, 9, 4, -1]
    return new.requires_grad_(), old.where(mask, NAN), mask, rewards, groups, lengths.tolist()


@pytest.mark.parametrize("score", ["log_ratio_old", "log_ratio_rollout", "log_ratio_ref"])
def test_the_policies_that_it_is_compared_with_may_carry_a_graph(batch, score):
    """The first update's old log-probabilities are the policy's own: with their gradient the loss has none."""
    new, _, mask, rewards, groups, _ = batch
    given, gradients = Objective(OBJECTIVES["real"].loss, score=score), []
    for anchor in (new, new.detach()):
        columns = {"ref_log_probs": anchor, "rollout_log_probs": anchor}
        loss, _ = real_policy_loss(new, anchor, mask, rewards, groups, objective=given, **columns)
        loss = loss + kl_old(new, anchor, mask)
        gradients.append(torch.autograd.grad(loss, new)[0])
    assert torch.equal(*gradients) and bool(gradients[0].any())


@pytest.mark.parametrize("uniform_groups", ["zero_loss", "keep"])
@pytest.mark.parametrize("tau", [0.1, 0.5, 1.0])
def test_loss_and_gradient_are_the_papers(batch, tau, uniform_groups):
    new, old, mask, rewards, groups, lengths = batch
    options = {"tau": tau, "uniform_groups": uniform_groups}
    loss, metrics = real_policy_loss(new, old, mask, torch.tensor(rewards), torch.tensor(groups), **options)
    scores = [naive_score("log_ratio_old", new[row, :count], old[row, :count]) for row, count in enumerate(lengths)]
    labels = [-1 if math.isnan(reward) else reward for reward in rewards]
    losses, _ = naive_losses(
        ObjectiveSettings("real", uniform_groups, {"tau": tau}), range(len(groups)), groups, scores, labels
    )
    expected = sum(losses) / len(losses)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
    (gradient,), (expected_gradient,) = torch.autograd.grad(loss, new), torch.autograd.grad(expected, new)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-12, atol=1e-12)
    assert (gradient[~mask] == 0).all() and (gradient[4] == 0).all()
    assert metrics["real/loss"] == pytest.approx(loss.item(), abs=1e-15)
    assert list(metrics) == list(GROUP_METRICS)
    named = real_policy_loss(new, old, mask, rewards, [f"prompt {group}" for group in groups], **options)[0]
    assert named.item() == pytest.approx(loss.item(), abs=1e-15)


def test_a_response_without_tokens_is_ungraded(batch):
    new, old, mask, rewards, groups, _ = batch
    mask = mask & (torch.arange(8) != 5)[:, None]
    found = []
    for rewards[5] in (1, 0, NAN):
        loss, metrics = real_policy_loss(new, old, mask, rewards, groups)
        found.append((loss.item(), metrics))
    assert found[0] == found[1] == found[2]


def test_nothing_to_learn_is_a_loss_of_0_with_zero_gradient(batch):
    new, old, mask, _, groups, _ = batch
    for rewards in ([NAN] * 8, [1] * 8, [0] * 8):
        loss = real_policy_loss(new, old, mask, rewards, groups)[0]
        assert loss.item() == 0 and (torch.autograd.grad(loss, new)[0] == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": [1, 0, 0.5, 1, 0, 0, 0, 0]}, r"reward of sample 2 is 0\.5: REAL's labels are 1"),
        ({"rewards": [math.inf] + [0] * 7}, "reward of sample 0 is inf"),
        ({"rewards": [1, None] + [0] * 6}, "reward of sample 1 is None. Use nan for an ungraded response"),
        ({"action_mask": torch.full((8, 6), 0.5)}, "action_mask must be 1 for generated tokens and 0 for"),
        ({"rewards": [1, 0]}, r"rewards has shape \(2,\), but there are 8 responses"),
        ({"group_ids": [0]}, r"group_ids has shape \(1,\), but there are 8 responses"),
        ({"group_ids": torch.zeros(8)}, "group_ids must be integers or strings, got a tensor of torch.float32"),
        ({"group_ids": [0.0] * 8}, r"group_ids must be integers or strings, got 0\.0"),
        *(({"group_ids": ids}, "group_ids must be integers or strings, got None") for ids in (None, [None] * 8)),
        ({"action_mask": torch.ones(8)}, r"must be tensors of one shape \(responses, tokens\), got"),
        ({"action_mask": [[1] * 6] * 8}, "must be tensors of one shape .*, list"),
        *(
            (
                {f"{policy}_log_probs": torch.zeros(shape)},
                rf"{policy}_log_probs.* must be tensors of one shape .*\({shape[0]}, {shape[1]}\)",
            )
            for policy in ("old", "ref", "rollout")
            for shape in ((1, 6), (8, 1))
        ),
        ({"tau": 0.1, "own": {"tau": 2.0}}, "tau is given twice"),
        ({"settings": {"tau": 0.1}, "own": {"tau": 2.0}}, "give settings alone"),
        ({"objective": "grpo"}, "unknown objective 'grpo'. Choose one of real, .*, or your own, FILE.py:NAME"),
        (
            {"objective": "disco_logl"},
            r"Did you mean \S*examples/objectives/disco\.py:disco_logl\? Choose one of real",
        ),
        ({"objective": "trpa"}, "needs ref_log_probs"),
        ({"own": {"score": "log_ratio_rollout"}}, "score kind log_ratio_rollout needs rollout_log_probs"),
        ({"objective": "bce", "own": {"reduction": "max"}}, "choose sum or mean"),
        ({"uniform_groups": "maybe"}, "choose zero_loss or keep"),
        ({"tau": 0.0}, "tau is 0.0: use a number above 0, for example 0.5"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(batch, change, message):
    new, old, mask, rewards, groups, _ = batch
    call = {"log_probs": new, "old_log_probs": old, "action_mask": mask, "rewards": rewards, "group_ids": groups}
    with pytest.raises(ValueError, match=message):
        real_policy_loss(**{**call, **change})


def test_a_broken_score_is_not_hidden_by_a_zero_weight():
    new = torch.tensor([[NAN]], requires_grad=True)
    scores = rollout_scores("log_ratio_old", new, torch.zeros(1, 1), None, torch.ones(1, 1))
    assert RealPolicyLoss()(scores, torch.zeros(1)).isnan()


def test_kl_old_adds_up_over_micro_batches(batch):
    new, old, mask, _, _, lengths = batch
    gaps = [new[r, t] - old[r, t] for r in range(8) for t in range(lengths[r])]
    expected = sum(torch.exp(-gap) - 1 + gap for gap in gaps)
    parts = [kl_old(new[rows], old[rows], mask[rows]) for rows in ([0, 1], [2], [3, 4, 5, 6, 7])]
    torch.testing.assert_close(sum(parts), expected, rtol=1e-12, atol=1e-14)
    gradients = [torch.autograd.grad(value, new, retain_graph=True)[0] for value in (sum(parts), expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)


def test_kl_old_stays_finite_where_the_policies_are_worlds_apart():
    new = torch.tensor([[-500.0, 0.0]], requires_grad=True)
    kl = kl_old(new, torch.tensor([[0.0, -500.0]]), torch.ones(1, 2))
    kl.backward()
    assert kl.item() == 20 and new.grad.isfinite().all()


@pytest.mark.parametrize("name", [name for name, one in OBJECTIVES.items() if one.score in KNOWN_AT_OLD])
def test_weights_for_trainers_that_take_advantages(name):
    """With them minus the mean over groups of weight x score has the loss's gradient where the policies are equal."""
    torch.manual_seed(0)
    new = torch.randn(12, 3, dtype=torch.float64, requires_grad=True)
    groups, mask = torch.arange(12) // 4, torch.ones(12, 3)
    rewards = [1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1]
    loss, _ = real_policy_loss(new, new.detach(), mask, rewards, groups, objective=name)
    (expected,) = torch.autograd.grad(loss, new)
    weights = group_weights(rewards, groups, objective=name)
    scores = rollout_scores(OBJECTIVES[name].score, new, new.detach(), None, mask)
    (found,) = torch.autograd.grad(-(weights * scores).sum() / 3, new)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)
    with pytest.raises(ValueError, match="trpa scores by log_ratio_ref, which rewards and groups do not tell"):
        group_weights(rewards, groups, objective="trpa")


def test_half_precision_log_probabilities_are_scored_in_fp32():
    """Weights of bf16 scores were up to 0.9 % off; of the same numbers in fp32 they are not."""
    generator = torch.Generator().manual_seed(0)
    old = (-2 * torch.rand(16, 256, generator=generator)).bfloat16()
    new = (old.float() + 0.02 * torch.randn(16, 256, generator=generator)).bfloat16()
    rewards, groups = [float(row % 3 == 0) for row in range(16)], [row // 8 for row in range(16)]
    gradients = []
    for kind in (torch.bfloat16, torch.float32):
        leaf = new.to(kind).requires_grad_()
        loss, _ = real_policy_loss(leaf, old.to(kind), torch.ones(16, 256, dtype=torch.bool), rewards, groups)
        assert loss.dtype == torch.float32
        gradients.append(torch.autograd.grad(loss, leaf)[0].float())
    assert (gradients[0] - gradients[1]).norm() < 2e-3 * gradients[1].norm()
