"""What ZeRO ranks log, wait for, load and send. That two train as one does: test_differential.py."""

import math
from importlib.metadata import version

import pytest
import torch
from naive import naive_group_loss
from packaging.version import parse

from real_openrlhf.algorithm.settings import ObjectiveSettings

WHOLE_GROUPS = {"loss": "ppo", "batching": "whole_groups", "groups_per_update": 4}


def test_a_score_against_the_sampler_has_one_anchor_in_every_update(one_rank, random_model):
    """The policy hardly moves, so its distance from vLLM is the same in each update, and in the log's means."""
    (found,) = one_rank("logged", model=random_model, loss="real", score="log_ratio_rollout", learning_rate=1e-12)
    assert found["sampling/kl"] != pytest.approx(0, abs=1e-4)
    (alone,) = one_rank("logged", model=random_model, loss="real", score="log_ratio_rollout", groups_per_update=4)
    assert alone["ppo_kl"] == pytest.approx(alone["sampling/kl"], rel=1e-5)
    assert alone["update/ratio_max"] == pytest.approx(found["update/ratio_max"], rel=1e-3)


def test_where_vllm_stands_in_for_the_old_policy_only_the_first_update_is_compared_with_vllm(one_rank, random_model):
    """Later ones have nothing to compare: the difference of vLLM's numbers from themselves would be logged as 0."""
    case = {"model": random_model, "loss": "real", "score": "log_ratio_rollout"}
    (((first, second), batch),) = one_rank("of_updates", **case)
    assert batch["sampling/kl"] == first["sampling/kl"] != 0 and "sampling/kl" not in second
    (((_, second), _),) = one_rank("of_updates", **case, kl_old_coef=0.1)  # which reads the old policy
    assert second["sampling/kl"] != 0


@pytest.mark.parametrize(
    "kind, least, warns", [("mixed", 1000, True), ("mixed", 0.001, False), ("uniform", 1000, False)]
)
def test_weights_without_a_gradient_are_told(one_rank, random_model, kind, least, warns):
    """Where no ratio is between the bounds, OpenRLHF's correction leaves out every token."""
    correction = "--algo.advantage.is_correction"
    flags = (f"{correction}_level", "token", f"{correction}_threshold", str(least), "2000")
    case = {"model": random_model, **WHOLE_GROUPS, "kinds": (kind,), "flags": flags}
    (told,) = one_rank("warnings", **case)
    assert ["exactly 0, though responses have weights" in line for line in told] == [True] * warns


@pytest.mark.parametrize("flags", [("--algo.kl.estimator", "k2"), ("--algo.kl.unbiased_gradient",)])
def test_a_reference_that_is_nan_where_nothing_was_sampled_reaches_no_gradient(one_rank, random_model, flags):
    flags = ("--algo.kl.use_loss", "--algo.kl.init_coef", "0.2", *flags)
    ((updates, _),) = one_rank("of_updates", model=random_model, loss="real", turns=True, flags=flags)
    assert all(math.isfinite(one["actor_grad_norm"]) for one in updates)


@pytest.mark.parametrize("method", [{"loss": "real"}, WHOLE_GROUPS], ids=["real", "ppo"])
def test_no_entropy_is_logged_where_none_is_computed_or_nothing_trained(two_ranks, random_model, method):
    case = {"model": random_model, "skip": True, **method, "groups_per_update": 4}
    for changes in ({"entropy_coef": 0.0, "kinds": ("uniform",)}, {"kinds": ("mixed",)}):
        assert "entropy_loss" not in two_ranks("logged", **case, **changes)[0]


def test_a_mixture_of_experts_loss_counts_once_an_update_in_every_layout(start_ranks, random_model):
    """A stand-in for it has a known gradient, and nothing else has one: groups are all right or all wrong."""
    for count, size in ((1, 1), (1, 4), (2, 1), (2, 2)):
        case = {"model": random_model, "kinds": ("uniform",), "zero_stage": 2, "micro_batch_size": size}
        norm, expected = start_ranks(count, "zero_jobs")("stand_in_aux_loss", **case)[0]
        assert norm == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("lora", [False, True])
def test_a_rank_limits_waves_by_the_forecasts_arithmetic(two_ranks, random_model, lora):
    for told, expected in two_ranks("live_tokens", model=random_model, lora=lora):
        assert told == expected > 0


@pytest.mark.parametrize("skip", [True, False])
def test_every_rank_tells_the_scores_and_weights_that_each_update_used(two_ranks, random_model, skip):
    """They are the formula's of these scores; what was left out has no score and weight 0."""
    first, second = two_ranks("weighed", model=random_model, skip=skip, learning_rate=3e-2)
    assert repr(first["tables"]) == repr(second["tables"]) and first["later"] == []
    old, moved = (list(zip(*table, strict=True)) for table in first["tables"])
    assert {score for *_, score, _ in old if not math.isnan(score)} <= {0.0}
    assert any(score for *_, score, _ in moved if not math.isnan(score))
    assert sorted({group for group, *_ in (*old, *moved)}) == [0, 1, 2, 3]
    for group in range(4):
        rows = [row for row in (*old, *moved) if row[0] == group]
        scores = [torch.tensor(0.0 if math.isnan(row[2]) else row[2], dtype=torch.float64) for row in rows]
        leaves = [score.requires_grad_() for score in scores]
        loss, _ = naive_group_loss(ObjectiveSettings(), leaves, [int(row[1]) for row in rows])
        expected = torch.autograd.grad(loss, leaves)
        assert [row[3] for row in rows] == pytest.approx([float(weight) for weight in expected], abs=1e-12)
        left_out = [row[3] for row in rows if math.isnan(row[2])]
        assert not any(left_out) and bool(left_out) == (skip and 0.0 in expected)
    largest = max(abs(row[3]) for row in (*old, *moved))
    assert largest == pytest.approx(first["logged"]["real/weight_abs_max"], rel=1e-9)


# Both trainers stop where vLLM and the policy are unrelated; how far they are apart: test_differential.py


@pytest.mark.parametrize("trainer", [{"loss": "real"}, WHOLE_GROUPS], ids=["real", "grpo"])
def test_unrelated_models_stop_every_rank_and_say_where_to_look(two_ranks, random_model, tmp_path, trainer):
    one, other = two_ranks("unrelated", model=random_model, run_dir=str(tmp_path), **trainer)
    assert one == other and one["told"].startswith(
        f"vLLM and the policy are unrelated in optimizer step {one['step']}:"
    )
    assert "differ by 2 on average" in one["told"] and "with LoRA: are the adapters in it?" in one["told"]


# A ZeRO-3 policy on two CPU ranks starts from the weights in the file. What went wrong: patches/README.md

# where two parameters are gathered together, the first of the two was not waited for
WITH_A_BIAS = [f"model.layers.{layer}.self_attn.{name}_proj.weight" for layer in (0, 1) for name in "qkv"]


@pytest.mark.parametrize("fixed", [True, False])  # by the strategy's setting; otherwise DeepSpeed's default
def test_a_late_gather_overwrites_weights_unless_it_is_waited_for(two_ranks, random_model, fixed):
    """The cause without the race: a gather that nobody waits for ends after the file's weights were written.

    DeepSpeed 0.19.8 waits for every gather, and is given no setting.
    """
    mended = parse(version("deepspeed")) >= parse("0.19.8")
    for wrong in two_ranks("weight_jobs.load_with_late_gathers", random_model, fixed):
        assert sorted(wrong) == ([] if fixed or mended else sorted(WITH_A_BIAS))


def test_a_model_without_gradients_can_be_asked_again_and_again(two_ranks, random_model):
    """DeepSpeed has prefetched from the third forward on; together with one gather at a time that loses weights."""
    first, second = two_ranks("weight_jobs.reference_forwards", random_model, 4)
    assert first == second == first[:1] * 4


@pytest.mark.parametrize("ipc", [False, True])
@pytest.mark.parametrize("stage", [2, 3])
def test_vllm_has_every_weight(two_ranks, random_model, stage, ipc):
    first, second = two_ranks("weight_jobs.handed_over", ipc=ipc, model=random_model, zero_stage=stage)
    assert first["right"] and first["calls"] == first["tensors"] and second["calls"] == 0
