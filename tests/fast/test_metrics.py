"""Every logged number by hand, empty sides, and the paper's Table 1."""

import math
from types import SimpleNamespace

import pytest
import torch

from real_openrlhf.algorithm.formulas import OBJECTIVES
from real_openrlhf.algorithm.groups import Table
from real_openrlhf.algorithm.metrics import (
    GROUP_METRICS,
    MERGED,
    MISMATCH_METRICS,
    RATIO_METRICS,
    Metric,
    gaps,
    group_counts,
    group_metrics,
    mismatch_metrics,
    norm_metrics,
    over_updates,
    ratio_metrics,
    ratio_table,
    rollout_gaps,
    rollout_gradients,
    token_gradients,
)
from real_openrlhf.algorithm.objective import ObjectiveSettings, score_weights
from real_openrlhf.hooks.actor.mismatch import Mismatch, MismatchError


def measure(scores, labels, groups, truncated=None, score_drift=0.0, num_groups=None, **options):
    settings = ObjectiveSettings(**options)
    scores, labels, groups = torch.tensor(scores, dtype=torch.float64), torch.tensor(labels), torch.tensor(groups)
    truncated = None if truncated is None else torch.tensor(truncated)
    table = Table(labels, groups, labels == 1, truncated=truncated)
    weighed = score_weights(settings, scores, table, num_groups)
    return group_metrics(scores, table, weighed, settings, score_drift=score_drift)


def test_group_metrics_of_every_kind_of_group_are_those_by_hand():
    # group 0: 2 positives, 1 negative; group 1: all negative; group 2: all positive; group 3: ignored
    metrics = measure(
        scores=[0.0, 0.5, -0.25, 0.1, -0.1, 0.2, 9.0],
        labels=[1, 1, 0, 0, -2, 1, -1],
        groups=[0, 0, 0, 1, 1, 2, 3],
        truncated=[False, True, True, True, False, False, True],
        score_drift=1e-3,
    )
    a, b = 1.0, math.exp(-1.0)  # exp(-s/tau) of the two positives
    n = math.exp(-0.5)
    w = [2 * a / (1 + a + b), 2 * b / (1 + a + b), 2 * n / (1 + n)]
    pos, neg = [0.0, 0.5, 0.2], [-0.25, 0.1, -0.1]
    expected = {
        "real/loss": (math.log(1 + a + b) + math.log(1 + n)) / 4,
        "real/loss_pos": math.log(1 + a + b) / 4,
        "real/loss_neg": math.log(1 + n) / 4,
        "real/score_pos": sum(pos) / 3,
        "real/score_neg": sum(neg) / 3,
        "real/score_pos_std": torch.tensor(pos).std(correction=0).item(),
        "real/score_neg_std": torch.tensor(neg).std(correction=0).item(),
        "real/score_pos_min": 0.0,
        "real/score_pos_max": 0.5,
        "real/score_neg_min": -0.25,
        "real/score_neg_max": 0.1,
        "real/score_pos_right": 2 / 3,
        "real/score_neg_right": 2 / 3,
        "real/score_std": torch.tensor(pos + neg).std(correction=0).item(),
        "real/score_abs_max": 0.5,
        "real/score_drift": 1e-3,
        "real/weight_pos": (w[0] + w[1]) / 3,  # the dropped group's positive has weight 0
        "real/weight_neg": w[2] / 3,
        "real/weight_abs_max": max(w),
        "real/weight_bound": max(w) / 2,
        "real/weight_cv": (a - b) / (a + b),  # std/mean of two values; single rollouts have no spread
        "real/mixed_groups": 1 / 4,
        "real/all_positive_groups": 1 / 4,
        "real/all_negative_groups": 1 / 4,
        "real/ignored": 1 / 7,
        "real/truncated_pos": 1 / 3,
        "real/truncated_neg": 2 / 3,
    }
    assert metrics == pytest.approx(expected, abs=1e-7)
    assert list(metrics) == list(GROUP_METRICS)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_key_set_is_constant_and_nothing_is_nan(name):
    for labels in ([], [-1, -1], [1, 1], [0, 0], [1, 0], [1, -1], [-2, 0]):
        metrics = measure([0.1, -0.2][: len(labels)], labels, [0, 0][: len(labels)], name=name)
        assert list(metrics) == list(GROUP_METRICS)
        assert all(type(value) is float and math.isfinite(value) for value in metrics.values())


def test_the_two_sides_add_up_where_they_can():
    layout = ([0.4, -0.3, 0.2, 0.1], [1, 0, 1, 0], [0, 0, 1, 1])
    for name in ("real", "bce", "constant"):
        for own in ({}, {"reduction": "mean"} if name == "bce" else {}):
            metrics = measure(*layout, name=name, own=own)
            assert metrics["real/loss_pos"] + metrics["real/loss_neg"] == pytest.approx(
                metrics["real/loss"], abs=1e-14
            )
    for name in ("no_anchor", "trpa"):
        metrics = measure(*layout, name=name)
        assert metrics["real/loss"] > 0 and metrics["real/loss_pos"] == metrics["real/loss_neg"] == 0


# ratios: below .5 and .79, low .8 and .9, high 1, 1.1 and 1.2, above 1.25 and 2
RATIOS = [0.5, 0.79, 0.8001, 0.9, 1.0, 1.1, 1.1999, 1.25, 2.0]


@pytest.fixture
def tokens():
    """Every ratio once for a positive, a negative and an ignored rollout, and padding of nan."""
    log_ratio = torch.tensor(RATIOS + [math.nan], dtype=torch.float64).log().expand(3, 10)
    old = torch.full((3, 10), -1.5, dtype=torch.float64)
    mask = torch.ones(3, 10)
    mask[:, -1] = 0
    return old + log_ratio, old, mask, torch.tensor([1, 0, -1])


def metrics_of(tokens, gradients):
    return ratio_metrics(ratio_table(*tokens, gradients))


def test_table_1_for_grpo(tokens):
    metrics = metrics_of(tokens, token_gradients("grpo", *tokens))
    for side in ("pos", "neg"):
        shares = [metrics[f"ratio/{side}/{name}/share"] for name in ("below", "low", "high", "above")]
        assert shares == pytest.approx([200 / 9, 200 / 9, 300 / 9, 200 / 9])
        assert metrics[f"ratio/{side}/low/grad"] == pytest.approx((0.8001 + 0.9) / 2)
        assert metrics[f"ratio/{side}/high/grad"] == pytest.approx((1 + 1.1 + 1.1999) / 3)
    # clipping is active above for positives, below for negatives
    assert metrics["ratio/pos/below/grad"] == pytest.approx((0.5 + 0.79) / 2) and metrics["ratio/pos/above/grad"] == 0
    assert metrics["ratio/neg/above/grad"] == pytest.approx((1.25 + 2) / 2) and metrics["ratio/neg/below/grad"] == 0


def test_grpo_gradients_are_those_of_the_clipped_objective(tokens):
    """|d clipped surrogate / d log pi| by autograd, advantage 1 and -1, DAPO's clip-higher."""
    new, old, _, _ = tokens
    new = new.clone().requires_grad_()
    ratio = (new - old).exp()
    advantage = torch.tensor([[1.0], [-1.0], [0.0]], dtype=torch.float64)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - 0.2, 1 + 0.28) * advantage)
    (expected,) = torch.autograd.grad(surrogate[:, :-1].sum(), new)
    got = token_gradients("grpo", *tokens, clip=(0.2, 0.28))
    torch.testing.assert_close(got[:2, :-1], expected[:2, :-1].abs(), rtol=1e-12, atol=1e-12)


def test_gspo_gradients_are_those_of_its_sequence_ratio():
    """|d loss / d log pi| times the length, by autograd, for sequences inside and outside the clip."""
    old = torch.zeros(4, 3, dtype=torch.float64)
    new = torch.tensor([[0.1, 0.2, 9.0], [0.1, 0.0, -0.2], [-0.1, -0.1, 0.1], [0.3, 0.1, 0.2]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]])
    labels = torch.tensor([1, 1, 0, 0])
    leaf = new.clone().requires_grad_()
    ratio = ((leaf * mask).sum(-1) / mask.sum(-1)).exp()
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - 3e-4, 1 + 4e-4) * advantage)
    (gradient,) = torch.autograd.grad(clipped.sum(), leaf)
    got = token_gradients("gspo", new, old, mask, labels, clip=(3e-4, 4e-4))
    expected = gradient.abs() * mask.sum(-1, keepdim=True)
    torch.testing.assert_close(got * mask, expected, rtol=1e-12, atol=1e-12)
    assert (expected[0] == 0).all() and (expected[1, 0] > 0) and (expected[2] == 0).all() and (expected[3, 0] > 1)


def test_table_1_for_one_weight_a_rollout(tokens):
    weights = torch.tensor([-0.4, 0.25, 0.0], dtype=torch.float64)
    *columns, _ = tokens
    metrics = metrics_of(tokens, rollout_gradients("log_ratio_old", *columns, weights))
    by_ratio = metrics_of(tokens, rollout_gradients("ratio_old", *columns, weights))
    for name in ("below", "low", "high", "above"):
        assert metrics[f"ratio/pos/{name}/grad"] == pytest.approx(0.4)
        assert metrics[f"ratio/neg/{name}/grad"] == pytest.approx(0.25)
    assert by_ratio["ratio/neg/above/grad"] == pytest.approx(0.25 * (1.25 + 2) / 2)
    sums = rollout_gradients("sum_log_ratio_old", *columns, weights)  # of as many means as tokens
    torch.testing.assert_close(sums[0], torch.full_like(sums[0], 0.4 * tokens[2][0].sum()))


def test_tables_of_micro_batches_add_up(tokens):
    gradients = token_gradients("grpo", *tokens)
    whole = ratio_table(*tokens, gradients)
    parts = [ratio_table(*(column[row : row + 1] for column in (*tokens, gradients))) for row in range(3)]
    torch.testing.assert_close(sum(parts), whole, rtol=0, atol=1e-12)
    assert whole[..., 0].sum() == 18 and parts[2].abs().sum() == 0


def test_an_empty_table_is_all_zeros():
    metrics = ratio_metrics(torch.zeros(2, 4, 2, dtype=torch.float64))
    assert set(metrics.values()) == {0.0} and set(metrics) >= set(RATIO_METRICS)


def test_a_metric_is_merged_by_its_rule_and_not_by_its_name(monkeypatch):
    monkeypatch.setitem(MERGED, "real/mean_of_max", Metric("a mean"))
    monkeypatch.setitem(MERGED, "real/deepest", Metric("a maximum", max))
    steps = [{"real/mean_of_max": value, "real/deepest": value} for value in (1.0, 3.0)]
    assert over_updates(steps, [1.0, 7.0]) == {"real/mean_of_max": 2.0, "real/deepest": 3.0}


def test_steps_of_a_rollout_batch_are_merged_by_what_the_number_is():
    names = (
        "policy_loss",
        "actor_lr",
        "real/score_drift",
        "real/weight_abs_max",
    )
    steps = [dict(zip(names, values, strict=True)) for values in [(1, 9, 0.1, 3), (3, 8, 0.3, 1)]]
    assert over_updates(steps) == dict(zip(names, (2, 8, 0.3, 3), strict=True))
    assert over_updates(steps[:1]) == steps[0]


@pytest.mark.parametrize("right", [(2, 0, 0, 0), (0, 0, 0, 3), (1, 3, 0, 2), (0, 0, 0, 0)])
def test_a_batch_of_updates_has_the_numbers_of_all_its_rollouts(right):
    """Updates without a right answer, or without tokens in a range, are in no mean and no extreme of these."""
    settings, scores = ObjectiveSettings("real", "keep"), torch.linspace(0.5, 1.5, 8, dtype=torch.float64)
    updates, tables, ratios = [], [], []
    for count in right:
        labels, truncated = (torch.arange(8) < count).long(), torch.arange(8) % 2 == 0
        table = Table(labels, torch.zeros(8, dtype=torch.long), truncated=truncated)
        weighed = score_weights(settings, scores, table)
        every = torch.ones(8, dtype=torch.bool)
        numbers = group_metrics(scores, table, weighed, settings) | group_counts(table, weighed, every)
        log_probs = torch.full((8, 2), 0.1 * (count + 1))  # each update in another range
        columns = (log_probs, torch.zeros(8, 2), torch.ones(8, 2), labels)
        ratios.append(ratio_table(*columns, weighed.rollout_weights.abs()[:, None].expand(8, 2)))
        updates.append(numbers | ratio_metrics(ratios[-1]))
        tables.append((labels, truncated, weighed.rollout_weights.abs()))
    merged = over_updates(updates, [16.0] * 4)
    labels, truncated, weights = (torch.cat(column).double() for column in zip(*tables, strict=True))
    of = {"pos": labels == 1, "neg": labels == 0}
    for side, chosen in of.items():
        own = scores.repeat(4)[chosen] if bool(chosen.any()) else torch.zeros(1, dtype=torch.float64)
        assert merged[f"real/score_{side}"] == pytest.approx(float(own.mean()))
        assert merged[f"real/score_{side}_min"] == pytest.approx(float(own.min()))
        for name, column in (("weight", weights), ("truncated", truncated)):
            expected = float(column[chosen].mean()) if bool(chosen.any()) else 0.0
            assert merged[f"real/{name}_{side}"] == pytest.approx(expected)
    pooled = ratio_metrics(torch.stack(ratios).sum(0))
    assert {name: merged[name] for name in RATIO_METRICS} == pytest.approx(
        {name: pooled[name] for name in RATIO_METRICS}
    )
    assert not [name for name in merged if name.startswith("count/")]


def test_an_update_counts_by_the_tokens_that_it_trained_and_an_empty_one_adds_none():
    """In what is of trained tokens and rollouts; losses, shares and weights are of all rollouts."""
    of_all = {"real/loss": 2.0, "policy_loss": 2.0, "real/mixed_groups": 2.0, "actor_lr": 3.0}
    names = ("entropy_loss", "mismatch/mean", "ppo_kl")
    steps = [
        {**dict.fromkeys(of_all, 1.0), **dict.fromkeys(names, 0.5)},
        {**dict.fromkeys(of_all, 2.0), **dict.fromkeys(names, 0.0)},
        {**dict.fromkeys(of_all, 3.0), **dict.fromkeys(names, 1.0)},
    ]
    merged = over_updates(steps, [30.0, 0.0, 10.0])
    assert {name: merged[name] for name in of_all} == of_all
    assert [merged[name] for name in names] == [(0.5 * 30 + 10) / 40] * 3
    assert over_updates(steps[1:2], [0.0])["ppo_kl"] == 0


@pytest.mark.parametrize(
    ("norms", "bound", "expected"),
    [
        ([0.5, 1.0, 1.5, 9.0], 1.0, (3.0, 9.0, 0.5)),
        ([0.5, 9.0], 0.0, (4.75, 9.0, 0.0)),  # DeepSpeed's bound of 0 is none
        ([2.0, 4.0, 0.0, 0.0], 1.0, (3.0, 4.0, 0.5)),  # the last two updates had nothing to train
        ([0.0], 1.0, (0.0, 0.0, 0.0)),
        ([], 1.0, (0.0, 0.0, 0.0)),
    ],
)
def test_gradient_norms_are_of_the_updates_that_trained(norms, bound, expected):
    """Mean over the updates that trained, the largest, and the share that was clipped."""
    names = ("actor_grad_norm", "update/grad_norm_max", "update/clipped_share")
    assert norm_metrics(norms, bound) == dict(zip(names, expected, strict=True))


# The gap between sampler and policy by hand, and what is said of it

POLICY = torch.tensor([[-1.0, -2.0, math.nan], [-0.5, -0.5, -0.5], [math.nan] * 3])
SAMPLER = torch.tensor([[-1.5, -1.75, 0.0], [-0.5, -0.5, -3.5], [0.0] * 3])
MASK = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0]])


def test_mismatch_of_ragged_rollouts_is_that_by_hand():
    """Gaps of vLLM over the policy: -0.5 and 0.25; 0, 0 and -3; none. What was not sampled says nothing."""
    assert rollout_gaps(POLICY, SAMPLER, MASK).tolist() == pytest.approx([0.375, 1.0, 0.0])
    found = mismatch_metrics(*gaps(POLICY, SAMPLER, MASK))
    expected = {"mean": 3.75 / 5, "max": 3.0, "kl": -3.25 / 5, "rollout_max": 1.0}
    assert found == pytest.approx({f"mismatch/{name}": value for name, value in expected.items()})
    assert list(found) == list(MISMATCH_METRICS)
    assert set(mismatch_metrics(torch.zeros(3), torch.zeros(2)).values()) == {0.0}


def judge(*means: float, mode="stop", temperature=1.0, top_p=1.0) -> list[str]:
    said: list[str] = []
    args = SimpleNamespace(rollout=SimpleNamespace(mismatch=mode, temperature=temperature, top_p=top_p))
    watch = Mismatch(args, said.append)
    for step, mean in enumerate(means, start=1):
        watch.judge({"mismatch/mean": mean}, step)
    return said


def test_rounding_is_silent_more_is_told_again_when_it_has_doubled():
    assert judge(0.005, 0.06) == []
    assert len(judge(0.07, 0.08, 0.139)) == 1
    (first, second) = judge(0.07, 0.13, 0.15)
    assert "differ by 0.07 on average in optimizer step 1; above 0.062 it is more than rounding" in first
    assert "step 3" in second


def test_unrelated_models_stop_the_run_unless_it_is_asked_to_go_on():
    with pytest.raises(MismatchError, match="unrelated in optimizer step 2: .* differ by 0.6 on average"):
        judge(0.005, 0.6)
    with pytest.raises(MismatchError):
        judge(math.nan)
    assert len(judge(0.6, mode="log")) == 1


def test_temperature_and_top_p_widen_what_is_allowed():
    assert judge(0.1, temperature=0.6) == [] and judge(0.1, top_p=0.95) == []
    assert len(judge(0.6, temperature=0.6)) == 1
