"""REAL's loss and gradient on real DeepSpeed engines are the paper's: one-graph autograd of the formula, in float32.

The trainer is the package's, in OpenRLHF's policy actor, on two ranks; the formula is written out naively in
`zero_jobs.NaiveReal`: every rollout alone, then groups. Rollouts are ragged, one group in four is uniform, one has an
ignored rollout, and the second epoch's steps are all later ones: the policy has moved.
"""

import pytest

TWO_EPOCHS = {"epochs": 2}
UNEVEN = {"group_sizes": (3, 2, 5, 4, 1, 6), "groups_per_step": 2}

CASES = {
    "deferred": {},
    "separate": {"scoring": "separate"},
    "separate, each micro-batch by itself": {"scoring": "separate", "rollout_micro_batch_size": 2},
    "micro_batch": {"scoring": "micro_batch", "micro_batch_size": 4},
    "deferred, one rollout in a micro-batch": {"micro_batch_size": 1},
    "deferred, the whole step in a micro-batch": {"micro_batch_size": 4},
    "deferred, checkpointing": {"checkpointing": True},
    "separate, checkpointing": {"scoring": "separate", "checkpointing": True},
    "micro_batch, checkpointing": {"scoring": "micro_batch", "micro_batch_size": 4, "checkpointing": True},
    "deferred, uneven groups": {**UNEVEN, "micro_batch_size": 1},
    "separate, uneven groups": {**UNEVEN, "micro_batch_size": 1, "scoring": "separate"},
    "deferred, token budget": {**UNEVEN, "max_tokens": 30},
    "separate, token budget": {**UNEVEN, "max_tokens": 30, "scoring": "separate"},
    "micro_batch, token budget": {"max_tokens": 64, "micro_batch_size": 4, "scoring": "micro_batch"},
    "uniform groups kept": {"uniform_groups": "keep"},
    "KL to the old policy": {"kl_old_coef": 0.1},
    "LoRA": {"lora": True},
}


@pytest.mark.parametrize("zero_stage", [3, 2])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_loss_and_gradient_are_the_papers(two_ranks, random_model, case, zero_stage):
    steps_of_ranks = two_ranks("real_steps", model=random_model, zero_stage=zero_stage, **TWO_EPOCHS, **case)
    for steps in steps_of_ranks:
        assert len(steps) == 2 * -(-len(case.get("group_sizes", (4,) * 4)) // 2)
        for step in steps:
            assert step["policy_loss"] == pytest.approx(step["naive_loss"], rel=1e-5)
            assert step["gradient_error"] < 1e-5
            assert step["actor_grad_norm"] == pytest.approx(step["naive_norm"], rel=1e-5)
        assert steps[0]["real/score_abs_max"] == 0
        assert all(step["real/score_abs_max"] > 0.01 for step in steps[1:])


def test_the_moving_average_takes_in_every_optimizer_step_once(two_ranks, random_model):
    """OpenRLHF counts micro-batches; here one step has four of them and moves the weights by 1e-2 or so."""
    case = {"zero_stage": 2, "ema": True, "micro_batch_size": 1, "learning_rate": 1e-2}
    for steps in two_ranks("real_steps", model=random_model, **TWO_EPOCHS, **case):
        assert steps[0]["micro_batches"] == 4
        assert max(step["ema_error"] for step in steps) < 1e-6


def test_a_rank_without_rollouts_runs_a_dummy_micro_batch(two_ranks, random_model):
    """Seven rollouts, one a micro-batch: a rank has four and the other three and a dummy, in first and later steps."""
    case = {"group_sizes": (4, 3), "micro_batch_size": 1}
    for scoring in ("deferred", "separate"):
        steps_of_ranks = two_ranks("real_steps", model=random_model, scoring=scoring, **TWO_EPOCHS, **case)
        assert [sum(step["dummies"] for step in steps) for steps in zip(*steps_of_ranks, strict=True)] == [1, 1]
        for step in (step for steps in steps_of_ranks for step in steps):
            assert step["micro_batches"] == 4
            assert step["gradient_error"] < 1e-5
            assert step["policy_loss"] == pytest.approx(step["naive_loss"], rel=1e-5)


@pytest.mark.parametrize(
    "scoring, size, checkpointing, forwards",
    [
        ("deferred", 2, False, [1, 1]),
        ("separate", 2, False, [1, 1.5]),  # two micro-batches are scored at once
        ("micro_batch", 4, False, [1, 1]),
        ("deferred", 2, True, [2, 2]),
        ("separate", 2, True, [2, 2.5]),
        ("micro_batch", 4, True, [2, 2]),
    ],
)
def test_forwards_for_each_micro_batch(two_ranks, random_model, scoring, size, checkpointing, forwards):
    """In the first step after a rollout nothing extra runs; then only the separate pass does. Checkpointing adds one."""
    case = {"scoring": scoring, "micro_batch_size": size, "checkpointing": checkpointing}
    for steps in two_ranks("real_steps", model=random_model, **case):
        assert [step["forwards"] / step["micro_batches"] for step in steps] == forwards
