"""Every logged number by hand, empty sides, and the paper's Table 1."""

import math

import pytest
import torch

from real_openrlhf.algorithm.formulas import OBJECTIVES
from real_openrlhf.algorithm.groups import RolloutBatch
from real_openrlhf.algorithm.metrics import (
    GROUP_METRICS,
    MISMATCH_METRICS,
    RATIO_METRICS,
    group_metrics,
    norm_metrics,
    over_updates,
)
from real_openrlhf.algorithm.mismatch import Mismatch, MismatchError, gaps, mismatch_metrics
from real_openrlhf.algorithm.objective import score_weights
from real_openrlhf.algorithm.settings import ObjectiveSettings
from real_openrlhf.algorithm.token_ratios import ratio_metrics, ratio_table, rollout_gradients, token_gradients


def measure(scores, labels, groups, score_drift=0.0, **options):
    settings = ObjectiveSettings(**options)
    scores, labels, groups = torch.tensor(scores, dtype=torch.float64), torch.tensor(labels), torch.tensor(groups)
    table = RolloutBatch(labels, groups, labels == 1)
    return group_metrics(scores, table, score_weights(settings, scores, table), settings, score_drift=score_drift)[0]


def test_group_metrics_of_every_kind_of_group_are_those_by_hand():
    # group 0: 2 positives, 1 negative; group 1: all negative; group 2: all positive; group 3: ignored
    metrics = measure(
        scores=[0.0, 0.5, -0.25, 0.1, -0.1, 0.2, 9.0],
        labels=[1, 1, 0, 0, -2, 1, -1],
        groups=[0, 0, 0, 1, 1, 2, 3],
        score_drift=1e-3,
    )
    a, b = 1.0, math.exp(-1.0)  # exp(-s/tau) of the two positives
    n = math.exp(-0.5)
    w = [2 * a / (1 + a + b), 2 * b / (1 + a + b), 2 * n / (1 + n)]
    pos, neg = [0.0, 0.5, 0.2], [-0.25, 0.1, -0.1]
    expected = {
        "real/loss": (math.log(1 + a + b) + math.log(1 + n)) / 4,
        "real/score_pos": sum(pos) / 3,
        "real/score_neg": sum(neg) / 3,
        "real/score_std": torch.tensor(pos + neg).std(correction=0).item(),
        "real/score_abs_max": 0.5,
        "real/score_drift": 1e-3,
        "real/weight_pos": (w[0] + w[1]) / 3,  # the dropped group's positive has weight 0
        "real/weight_neg": w[2] / 3,
        "real/weight_abs_max": max(w),
        "real/weight_bound": max(w) / 2,
        "real/weight_cv": (a - b) / (a + b),  # std/mean of two values; single rollouts have no spread
        "rollout/frac_mixed": 1 / 4,
        "real/frac_unlabelled": 1 / 7,
    }
    assert list(metrics) == list(GROUP_METRICS) == list(expected)  # each has a number above
    assert metrics == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_key_set_is_constant_and_nothing_is_nan(name):
    """Only objectives with a tau have a bound of weights."""
    names = [one for one in GROUP_METRICS if one != "real/weight_bound" or "tau" in OBJECTIVES[name].settings]
    for labels in ([], [-1, -1], [1, 1], [0, 0], [1, 0], [1, -1], [-2, 0]):
        metrics = measure([0.1, -0.2][: len(labels)], labels, [0, 0][: len(labels)], name=name)
        assert list(metrics) == names
        assert all(type(value) is float and math.isfinite(value) for value in metrics.values())


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


@pytest.mark.parametrize("family, low, high", [("grpo", 0.2, 0.28), ("gspo", 3e-4, 4e-4)])
def test_gradients_of_a_baseline_are_those_of_its_clipped_objective(family, low, high):
    """|d surrogate / d log pi| by autograd, times the length where the ratio is a whole answer's."""
    old, labels = torch.zeros(4, 3, dtype=torch.float64), torch.tensor([1, 1, 0, 0])
    new = torch.tensor([[0.1, 0.2, 9.0], [0.1, 0.0, -0.2], [-0.1, -0.3, 0.1], [0.3, 0.1, 0.2]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]])
    leaf, advantage = new.clone().requires_grad_(), torch.tensor([[1.0], [1.0], [-1.0], [-1.0]])
    length = mask.sum(-1, keepdim=True) if family == "gspo" else 1
    ratio = ((leaf * mask).sum(-1, keepdim=True) / length if family == "gspo" else leaf * mask).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
    (gradient,) = torch.autograd.grad(surrogate.sum(), leaf)
    got = token_gradients(family, new, old, mask, labels, clip=(low, high)) * mask
    torch.testing.assert_close(got, gradient.abs() * length, rtol=1e-12, atol=1e-12)
    assert (got == 0).sum() > 1 and (got[3] > 1).all()


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


def test_updates_of_a_batch_are_merged_by_what_the_number_is():
    """Some by a rule of their own; an update counts by the tokens that it trained, and an empty one adds none.

    Losses, shares and weights are of all rollouts.
    """
    names = (
        "policy_loss",
        "actor_lr",
        "real/score_drift",
        "real/weight_abs_max",
        "rollout/frac_mixed",
        "entropy_loss",
    )
    values = [(1, 9, 0.1, 3, 1, 0.5), (3, 8, 0.3, 1, 2, 0.0), (5, 7, 0.2, 2, 3, 1.0)]
    steps = [dict(zip(names, own, strict=True)) for own in values]
    merged = over_updates(steps, [30.0, 0.0, 10.0])
    assert merged == pytest.approx(dict(zip(names, (3, 7, 0.2, 3, 2, (0.5 * 30 + 10) / 40), strict=True)))
    assert over_updates(steps[1:2], [0.0]) == steps[1]


@pytest.mark.parametrize("right", [(2, 0, 0, 0), (0, 0, 0, 3), (1, 3, 0, 2), (0, 0, 0, 0)])
def test_a_batch_of_updates_has_the_numbers_of_all_its_rollouts(right):
    """Updates without a right answer, or without tokens in a range, are in no mean and no extreme of these."""
    settings, first = ObjectiveSettings("real", "keep"), torch.linspace(0.5, 1.5, 8, dtype=torch.float64)
    updates, tables, ratios, all_scores = [], [], [], []
    for number, count in enumerate(right):
        labels, scores = (torch.arange(8) < count).long(), first * number
        all_scores.append(scores)
        table = RolloutBatch(labels, torch.zeros(8, dtype=torch.long))
        weighed = score_weights(settings, scores, table)
        numbers, counts = group_metrics(scores, table, weighed, settings)
        log_probs = torch.full((8, 2), 0.1 * (count + 1))  # each update in another range
        columns = (log_probs, torch.zeros(8, 2), torch.ones(8, 2), labels)
        ratios.append(ratio_table(*columns, weighed.rollout_weights.abs()[:, None].expand(8, 2)))
        updates.append(numbers | counts | ratio_metrics(ratios[-1]))
        tables.append((labels, weighed.rollout_weights.abs()))
    merged = over_updates(updates, [16.0] * 4)
    labels, weights = (torch.cat(column).double() for column in zip(*tables, strict=True))
    for side, chosen in {"pos": labels == 1, "neg": labels == 0}.items():
        for name, column in (("score", torch.cat(all_scores)), ("weight", weights)):
            expected = float(column[chosen].mean()) if bool(chosen.any()) else 0.0
            assert merged[f"real/{name}_{side}"] == pytest.approx(expected)
    assert merged["real/score_std"] == pytest.approx(float(torch.cat(all_scores).std(correction=0)))
    pooled = ratio_metrics(torch.stack(ratios).sum(0))
    assert {name: merged[name] for name in RATIO_METRICS} == pytest.approx(
        {name: pooled[name] for name in RATIO_METRICS}
    )
    assert not [name for name in merged if name.startswith("count/")]
    capped = [{"sampling/frac_is_ratio_capped": share, "count/rollouts": count} for share, count in ((0, 6), (1, 2))]
    assert over_updates(capped, [10.0, 90.0]) == {"sampling/frac_is_ratio_capped": 0.25}


@pytest.mark.parametrize(
    ("norms", "bound", "expected"),
    [
        ([0.5, 1.0, 1.5, 9.0], 1.0, (3.0, 0.5)),
        ([0.5, 9.0], 0.0, (4.75, 0.0)),  # DeepSpeed's bound of 0 is none
        ([2.0, 4.0, 0.0, 0.0], 1.0, (3.0, 0.5)),  # the last two updates had nothing to train
        ([2.0, 4.0, 3e-8], 1.0, (3.0, 2 / 3)),  # the last had a gradient of rounding size
        ([0.0], 1.0, (0.0, 0.0)),
        ([], 1.0, (0.0, 0.0)),
    ],
)
def test_gradient_norms_are_of_the_updates_that_trained(norms, bound, expected):
    """Mean over the updates that trained, and the share that was clipped."""
    names = ("actor_grad_norm", "update/frac_clipped")
    assert norm_metrics(norms, bound) == dict(zip(names, expected, strict=True))


# The gap between sampler and policy by hand

POLICY = torch.tensor([[-1.0, -2.0, math.nan], [-0.5, -0.5, -0.5], [math.nan] * 3])
SAMPLER = torch.tensor([[-1.5, -1.75, 0.0], [-0.5, -0.5, -3.5], [0.0] * 3])
MASK = torch.tensor([[1, 1, 0], [1, 1, 1], [0, 0, 0]])


def test_mismatch_of_ragged_rollouts_is_that_by_hand():
    """Gaps of vLLM over the policy: -0.5 and 0.25; 0, 0 and -3; none. What was not sampled says nothing."""
    found = mismatch_metrics(*gaps(POLICY, SAMPLER, MASK))
    expected = {"logprob_diff_mean": 3.75 / 5, "logprob_diff_max": 3.0, "kl": -3.25 / 5}
    assert found == pytest.approx({f"sampling/{name}": value for name, value in expected.items()})
    assert list(found) == list(MISMATCH_METRICS)
    assert set(mismatch_metrics(torch.zeros(3), torch.zeros(())).values()) == {0.0}


def judge(*means: float, stops=True, temperature=1.0, top_p=1.0) -> list[str]:
    lines: list[str] = []
    watch = Mismatch(stops, top_p, temperature, lines.append)
    for step, mean in enumerate(means, start=1):
        watch.judge(mean, step)
    return lines


def test_rounding_is_silent_more_is_told_again_when_it_has_doubled_and_unrelated_models_stop():
    assert judge(0.005, 0.06) == []
    assert len(judge(0.07, 0.08, 0.139)) == 1
    (first, second) = judge(0.07, 0.13, 0.15)
    assert "differ by 0.07 on average in optimizer step 1; above 0.062 it is more than rounding" in first
    assert "step 3" in second
    with pytest.raises(MismatchError, match="unrelated in optimizer step 2: .* differ by 0.6 on average"):
        judge(0.005, 0.6)
    with pytest.raises(MismatchError):
        judge(math.nan)
    assert len(judge(0.6, stops=False)) == 1
    assert judge(0.1, temperature=0.6) == [] and judge(0.1, top_p=0.95) == []  # both widen what is allowed
    assert len(judge(0.6, temperature=0.6)) == 1
