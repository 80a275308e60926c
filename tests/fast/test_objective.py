"""The formulas over a score table: hand values, Proposition 5.1, extremes, and how to add one."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from real_openrlhf.algorithm.formulas import OBJECTIVES, SCORES
from real_openrlhf.algorithm.groups import IGNORED, POSITIVE, Table
from real_openrlhf.algorithm.objective import ObjectiveSettings, rollout_scores, score_weights

TAU = 0.5
quick = settings(max_examples=20, deadline=None, derandomize=True, database=None)
score = st.floats(-5, 5)
sides = st.integers(1, 63)


def weigh(scores, labels, groups=None, num_groups=None, name="real", **own):
    """One group unless told otherwise, in float64."""
    scores = torch.as_tensor(scores, dtype=torch.float64)
    labels = torch.as_tensor(labels)
    groups = torch.zeros_like(labels) if groups is None else torch.as_tensor(groups)
    return score_weights(
        ObjectiveSettings(name, own=own), scores, Table(labels, groups, labels == POSITIVE), num_groups
    )


@quick
@given(
    st.lists(score, min_size=1, max_size=63),
    st.lists(score, min_size=1, max_size=63),
    st.sampled_from([0.1, 0.5, 1.0]),
)
def test_proposition_5_1_closed_form_and_bound(positives, negatives, tau):
    weights = weigh(positives + negatives, [1] * len(positives) + [0] * len(negatives), tau=tau).weights.tolist()
    for k, s in enumerate(positives):
        c = 1 + sum(math.exp(-other / tau) for i, other in enumerate(positives) if i != k)
        assert weights[k] == pytest.approx(-1 / tau / (1 + c * math.exp(s / tau)), rel=1e-10, abs=1e-14)
    for k, s in enumerate(negatives):
        c = 1 + sum(math.exp(other / tau) for i, other in enumerate(negatives) if i != k)
        assert weights[len(positives) + k] == pytest.approx(1 / tau / (1 + c * math.exp(-s / tau)), rel=1e-10)
    assert all(weight < 0 for weight in weights[: len(positives)])
    assert all(weight > 0 for weight in weights[len(positives) :])
    # strict, until exp(-|s|/tau) is lost in float64's last digit
    assert all(abs(weight) < 1 / tau or (tau == 0.1 and abs(weight) == 1 / tau) for weight in weights)


@pytest.mark.parametrize("uniform_groups", ["drop", "keep"])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(
    "labels", [[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0], [-1, -1, -1, -1], [1, 0, -1, -2], [1], [-1], []]
)
def test_extreme_scores_in_float32(name, labels, uniform_groups):
    settings = ObjectiveSettings(name, uniform_groups=uniform_groups)
    labels = torch.tensor(labels, dtype=torch.long)
    for scores in ([500.0, -500.0, 500.0, -500.0], [-500.0, -500.0, 500.0, 500.0], [500.0] * 4, [-500.0] * 4):
        table = Table(labels, torch.zeros_like(labels), labels == POSITIVE)
        weighed = score_weights(settings, torch.tensor(scores[: len(labels)]), table)
        assert weighed.weights.dtype == torch.float32
        for value in (weighed.loss, weighed.loss_pos, weighed.loss_neg, weighed.weights):
            assert value.isfinite().all()
        assert (weighed.weights[labels == IGNORED] == 0).all()


def test_extreme_scores_by_hand():
    # positive at -500: log(1 + e^1000) = 1000, pulled with 1/tau; negative at -500: nothing left to do
    weighed = weigh([-500.0, -500.0], [1, 0])
    assert weighed.loss.item() == 1000.0
    assert weighed.weights.tolist() == [-2.0, 0.0]


def test_permuted_and_shrunk_weights_have_reals_sum_in_each_class_and_its_bound():
    generator = torch.Generator().manual_seed(1)
    scores = 2 * torch.randn(4000, 8, generator=generator, dtype=torch.float64).sort(-1).values
    table = scores.flatten(), [1, 1, 1, 0, 0, 0, 0, -1] * 4000, torch.arange(4000).repeat_interleave(8)
    of_real, mixed, level = (weigh(*table, name=name) for name in ("real", "permuted", "shrunk"))
    assert of_real.loss == mixed.loss == level.loss
    known, mixed, level = (one.rollout_weights.view(4000, 8) for one in (of_real, mixed, level))
    for side in (slice(0, 3), slice(3, 7)):
        torch.testing.assert_close(mixed[:, side].sort(-1).values, known[:, side].sort(-1).values)
        torch.testing.assert_close(
            level[:, side], known[:, side].mean(-1, keepdim=True).expand(-1, known[:, side].shape[1])
        )
        # each of the class is as likely to get the largest weight: no link to its score
        largest = torch.bincount(mixed[:, side].abs().argmax(-1)) / 4000
        assert largest.tolist() == pytest.approx([1 / len(largest)] * len(largest), abs=0.03)
    assert not mixed[:, 7].any() and mixed.abs().max() < 1 / TAU


def test_more_groups_than_were_said_are_refused():
    with pytest.raises(ValueError, match="num_groups is 2, but the table holds 3 groups"):
        weigh([0.0] * 3, [1, 0, 1], [0, 1, 2], num_groups=2)


def test_an_ignored_rollout_changes_nothing_for_the_others():
    for name in OBJECTIVES:
        for bad in (0.7, 500.0, math.nan, math.inf):
            without, with_it = weigh([0.1, -0.2], [1, 0], name=name), weigh([0.1, bad, -0.2], [1, -1, 0], name=name)
            assert with_it.loss.item() == without.loss.item()
            assert with_it.weights.tolist() == [without.weights[0].item(), 0.0, without.weights[1].item()]


def test_what_objectives_need_is_what_they_do():
    assert {name for name, o in OBJECTIVES.items() if o.needs_reference} == {"trpa"}
    assert {name for name, o in OBJECTIVES.items() if o.needs_step_kl} == {"disco_logl", "disco_lratio"}
    for name, needs in OBJECTIVES.items():
        table = ([0.1, -0.2, 0.4], [1, 0, 0])
        usual = weigh(*table, name=name).loss.item()
        for setting, one in needs.settings.items():
            other = one.choices[-1] if one.choices else one.default + 0.5
            if setting != "score" and not setting.startswith("disco"):  # which are read outside of the formula
                assert weigh(*table, name=name, **{setting: other}).loss.item() != usual, (name, setting)


def test_scores_against_a_sampler_that_is_the_old_policy_are_the_papers():
    new, old, mask = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.5, -1.0]]), torch.tensor([[1, 1]])
    for mean_or_sum in ("", "sum_"):
        kinds = f"{mean_or_sum}log_ratio_old", f"{mean_or_sum}log_ratio_rollout"
        ours, samplers = (rollout_scores(kind, new, old, None, mask, old.clone()) for kind in kinds)
        assert torch.equal(ours, samplers)
        with pytest.raises(ValueError, match=f"score kind {kinds[1]} needs rollout_log_probs"):
            rollout_scores(kinds[1], new, old, None, mask)


@pytest.mark.parametrize("kind", SCORES)
def test_scores_of_ragged_rollouts(kind):
    new = torch.tensor([[-1.0, -2.0, -3.0], [-0.5, math.nan, -math.inf], [math.nan] * 3], dtype=torch.float64)
    old = torch.tensor([[-1.5, -1.0, -2.0], [-1.0, math.inf, math.nan], [math.nan] * 3], dtype=torch.float64)
    ref, drawn = old - 0.25, old + 0.5
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [0, 0, 0]])
    new.requires_grad_()
    scores = rollout_scores(kind, new, old, ref, mask, drawn)
    per_token = {
        "log_ratio_old": lambda n, o: n - o,
        "log_ratio_rollout": lambda n, o: n - o - 0.5,
        "log_ratio_ref": lambda n, o: n - o + 0.25,
        "log_prob": lambda n, o: n,
        "ratio_old": lambda n, o: math.exp(n - o),
    }[kind.removeprefix("sum_")]
    count = 1 if kind.startswith("sum_") else 3
    full = [per_token(n, o) for n, o in [(-1.0, -1.5), (-2.0, -1.0), (-3.0, -2.0)]]
    assert scores.tolist() == pytest.approx([sum(full) / count, per_token(-0.5, -1.0), 0.0], abs=1e-15)
    scores.sum().backward()
    slopes = full if kind.endswith("ratio_old") and "log" not in kind else [1.0] * 3
    assert new.grad[0].tolist() == pytest.approx([slope / count for slope in slopes], abs=1e-15)
    assert new.grad[1, 1:].tolist() == [0, 0] and new.grad[2].tolist() == [0, 0, 0]
