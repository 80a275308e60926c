"""REAL's loss and gradient on real DeepSpeed engines are the paper's: one-graph autograd of the formula, in float32.

The trainer is the package's, in OpenRLHF's policy actor, on two ranks; the formula is written out naively in
`zero_jobs.NaiveReal`: every rollout alone, then groups. Rollouts are ragged, one group in four is uniform, one has an
ignored rollout, and the second epoch's steps are all later ones: the policy has moved. Here are layouts;
`test_differential.py` has every method.

Models of full size go through OpenRLHF's Actor on tensors without values (`full_width.py`), at the recipes' own token
budgets. The estimate of `--dry-run` must agree within 10 %. The last tests are of the gap to vLLM (mismatch.py).
"""

import pytest
import torch
from every import cells
from small_runs import plan

from real_openrlhf.algorithm.graph_memory import LOGITS_AT_ONCE_ON_GPU, graph_bytes_per_token
from real_openrlhf.recipes.recipes import RECIPES as EVERY_RECIPE
from real_openrlhf.training.checks import memory_estimate

TWO_EPOCHS = {"epochs": 2}
OLD_FIRST = {"flags": ("--algo.real.mismatch_limit", "1000")}  # known for every rollout before training
UNEVEN = {"group_sizes": (3, 2, 5, 4, 1, 6), "groups_per_step": 2}

CASES = {
    "as shallow as it packs": {},
    "one rollout in a micro-batch": {"micro_batch_size": 1},
    "one rollout in a micro-batch, waves of one": {"micro_batch_size": 1, "depth": "1"},
    "the whole step in a wave": {"micro_batch_size": 1, "depth": "1000"},
    "the whole step in a micro-batch": {"micro_batch_size": 4},
    "scored first": {"depth": "0"},
    "checkpointing": {"checkpointing": True},
    "checkpointing, the whole step in a wave": {"micro_batch_size": 1, "depth": "1000", "checkpointing": True},
    "checkpointing, scored first": {"depth": "0", "checkpointing": True},
    "uneven groups": {**UNEVEN, "micro_batch_size": 1},
    "uneven groups, deep": {**UNEVEN, "micro_batch_size": 1, "depth": "1000"},
    "uneven groups, scored first": {**UNEVEN, "micro_batch_size": 1, "depth": "0"},
    "a rank with a dummy": {"group_sizes": (4, 3), "micro_batch_size": 1, "depth": "1000"},
    "a rank with a dummy, scored first": {"group_sizes": (4, 3), "micro_batch_size": 1, "depth": "0"},
    "token budget": {**UNEVEN, "max_tokens": 30},
    "token budget, waves of one": {**UNEVEN, "max_tokens": 30, "depth": "1"},
    "token budget, scored first": {**UNEVEN, "max_tokens": 30, "depth": "0"},
    "old log-probabilities by a forward of their own": OLD_FIRST,
    "uniform groups kept": {"uniform_groups": "keep"},
    "KL to the old policy": {"kl_old_coef": 0.1},
    "LoRA": {"lora": True},
    "no gradient, left out": {"skip": True},
    "several turns": {**UNEVEN, "turns": True, "micro_batch_size": 1, "kl_old_coef": 0.1},
    "against the sampler": {"score": "log_ratio_rollout", **UNEVEN, "micro_batch_size": 1, "skip": True},
    "sums against the sampler, KL to the old policy": {"score": "sum_log_ratio_rollout", "kl_old_coef": 0.1},
}


# A layout decides which forward goes into which wave, and ZeRO-2 differs in how gradients are kept over waves.
DUMMIES = "a rank with a dummy", "a rank with a dummy, scored first"
IN_ZERO_3 = (*DUMMIES, "LoRA", "uneven groups, scored first", "token budget")
GRID = [(name, stage) for stage in (3, 2) for name in CASES]
ALWAYS = [(name, 3 if name in IN_ZERO_3 else 2) for name in CASES]


@pytest.mark.parametrize("name, zero_stage", cells(GRID, ALWAYS))
def test_loss_and_gradient_are_the_papers(two_ranks, random_model, name, zero_stage):
    case = CASES[name]
    steps_of_ranks = two_ranks("real_steps", model=random_model, zero_stage=zero_stage, **TWO_EPOCHS, **case)
    for steps in steps_of_ranks:
        assert len(steps) == 2 * -(-len(case.get("group_sizes", (4,) * 4)) // 2)
        for step in steps:
            assert step["policy_loss"] == pytest.approx(step["naive_loss"], rel=1e-5)
            assert step["gradient_error"] < 1e-5
            assert step["actor_grad_norm"] == pytest.approx(step["naive_norm"], rel=1e-5)
        unknown = case.get("score", "").endswith("rollout")
        assert (steps[0]["real/score_abs_max"] > 0.01) == unknown
        assert all(step["real/score_abs_max"] > 0.01 for step in steps[1:])


def test_the_moving_average_takes_in_every_optimizer_step_once(two_ranks, random_model):
    """OpenRLHF counts micro-batches; here one step has four of them and moves the weights by 1e-2 or so."""
    case = {"zero_stage": 2, "ema": True, "micro_batch_size": 1, "learning_rate": 1e-2}
    for steps in two_ranks("real_steps", model=random_model, **TWO_EPOCHS, **case):
        assert steps[0]["micro_batches"] == 4
        assert max(step["ema_error"] for step in steps) < 1e-6


@pytest.mark.parametrize(
    "layout, checkpointing, forwards",
    [
        ({}, False, [1, 1]),
        ({"micro_batch_size": 1, "depth": "1000"}, False, [1, 1]),
        ({"depth": "0"}, False, [1, 2]),
        ({}, True, [2, 2]),
        ({"depth": "0"}, True, [2, 3]),
    ],
)
def test_forwards_for_each_micro_batch(two_ranks, random_model, layout, checkpointing, forwards):
    """Nothing extra runs unless every wave is scored first, and never in the first step. Checkpointing adds one."""
    case = {"zero_stage": 2, "checkpointing": checkpointing}
    for steps in two_ranks("real_steps", model=random_model, **case, **layout):
        assert [step["forwards"] / step["micro_batches"] for step in steps] == forwards


def test_old_log_probabilities_of_the_first_update_are_its_own_forwards(two_ranks, random_model):
    """Its scores are exactly 0 then: a forward of their own would leave the difference of two roundings."""
    for steps in two_ranks("real_steps", model=random_model, zero_stage=2, **TWO_EPOCHS):
        assert steps[0]["real/score_drift"] == 0


def test_the_host_waits_once_a_wave_and_once_a_step(two_ranks, random_model):
    """Two steps of four groups: the first one's scores are known, the second has as many waves as groups need."""
    case = {"group_sizes": (4,) * 8, "groups_per_step": 4, "micro_batch_size": 1}
    for depth, waves in (("1", 4), ("1000", 1)):
        for counted in two_ranks("host_waits", model=random_model, depth=depth, **case):
            assert counted == {"waits": 0, "fetches": waves + 2}  # other than by fetching: none


def test_waves_of_one_keep_zero_3_fetching_ahead(two_ranks, random_model):
    """DeepSpeed fetches ahead once it knows the order of modules: forward, backward, as waves of one run."""
    case = {"model": random_model, "group_sizes": (4,) * 16, "groups_per_step": 4, "micro_batch_size": 2}
    for steps in two_ranks("prefetched", **case, depth="1"):
        assert steps[1:] == [1, 1, 1]  # the first one records it
    for steps in two_ranks("prefetched", **case, depth="1000"):
        assert max(steps[2:]) < 0.5


# Full-size models through OpenRLHF's Actor, our attention and head, at the recipes' own token budgets.


# Adapters need every layer: their own head and first layer differ from what the estimate counts, others hardly do.
RECIPES = {"qwen7b": 2, "qwen1.5b": 2, "qwen7b-lora": 8}
FILLED = {"qwen7b": 2, "qwen1.5b-1gpu": 2}  # with --fill
AT_FULL_WIDTH = [(name, False) for name in RECIPES] + [(name, True) for name in FILLED]


def close(found: float, estimate: float) -> bool:
    return found == pytest.approx(estimate, rel=0.1)


@pytest.mark.parametrize("recipe, filled", AT_FULL_WIDTH)
def test_the_estimate_is_what_a_step_at_full_width_holds(one_rank, recipe, filled):
    found = plan(recipe)
    known = memory_estimate.KNOWN_CONFIGS[found.text("--actor.model_name_or_path")]
    full, gpu = memory_estimate.shape_of(known), EVERY_RECIPE[recipe].gpu_gb * 1e9
    if filled:
        flags = memory_estimate.filling(full, found, gpu)
        found = plan(recipe, user={flag: (value,) for flag, value in flags.items()})
    config = {**known, "num_hidden_layers": (FILLED if filled else RECIPES)[recipe]}
    shape, rank = memory_estimate.shape_of(config), found.number("--ds.lora.rank")
    tokens, many = (memory_estimate.tokens(found, when) for when in (memory_estimate.TRAIN, memory_estimate.ROLLOUT))
    sizes = shape.hidden, shape.intermediate, shape.layers, shape.vocabulary

    def step(tokens: int, **how) -> dict:
        (result,) = one_rank("full_width.step", config=config, tokens=tokens, lora_rank=rank, **how)
        assert result["mixes"] == {} and sum(result["waits"].values()) == 5
        return result

    again, whole = (step(tokens, checkpointing=way) for way in (True, False))
    for way, one in ((True, again), (False, whole)):
        estimate = graph_bytes_per_token(*sizes, checkpointing=way, logit_free=True) * tokens
        assert close(one["kept"], estimate) or rank  # a head and norms that are not trained keep less
    layer = 16 * shape.hidden + 4 * (shape.attention_width + shape.kv_width) + 8 * shape.intermediate
    assert close(whole["saved"], layer * tokens)
    moments = memory_estimate.moments(shape, found)
    assert close(again["head"], moments["activations at their largest: the head"])
    assert close(again["backward"], moments["activations at their largest: one layer"])
    if filled:  # the bytes that this step held, and those of the layers that it lacks, beside all else
        lacking = (full.layers - shape.layers) * 2 * shape.hidden * tokens
        beside = memory_estimate.kept_graphs(full, found, gpu) + memory_estimate.RUNTIME_BYTES
        total = again["backward"] + lacking + beside + sum(memory_estimate.states(full, found).values())
        assert 0.75 * gpu < total < 1.03 * memory_estimate.SHARE * gpu
    scored = step(many, checkpointing=True, gradients=False)
    assert close(scored["forward"], moments["log-probabilities of rollouts"])

    packed = (tokens, shape.heads, shape.attention_width // shape.heads)
    attention = [call for call in again["calls"] if call[0] == "torch_attn::_varlen_attn"]
    assert len(attention) == 2 * shape.layers  # there, and again
    assert all(shapes[0] == packed and formats == {torch.bfloat16, torch.int32} for _, shapes, formats in attention)
    words = LOGITS_AT_ONCE_ON_GPU // tokens // 8 * 8
    blocks = [shapes for _, shapes, _ in again["calls"] if shapes == [(tokens, shape.hidden), (shape.hidden, words)]]
    assert len(blocks) == 2 * (shape.vocabulary // words)  # there and back; the last one is smaller


# Both trainers tell how far the sampler is from the policy, over all ranks, and stop where the two are unrelated.


DEALT = {"loss": "ppo", "deal": "groups", "groups_per_step": 4}


@pytest.fixture
def report(two_ranks, random_model, tmp_path):
    def reports(shifts, **case) -> list[dict]:
        return two_ranks("gap_to_sampler", shifts=shifts, model=random_model, run_dir=str(tmp_path), **case)

    return reports


@pytest.mark.parametrize("trainer", [{"loss": "real"}, DEALT], ids=["real", "grpo, dealt"])
def test_a_gap_is_that_of_all_ranks_tokens(report, trainer):
    shifts = [0.01, -0.03]
    one, other = report(shifts, **{"groups_per_step": 4, **trainer})
    tokens = one["tokens"], other["tokens"]
    assert {k: v for k, v in one.items() if k != "tokens"} == {k: v for k, v in other.items() if k != "tokens"}
    weighted = [sum(map(lambda n, s: n * s, tokens, signed)) / sum(tokens) for signed in (shifts, map(abs, shifts))]
    assert one["mismatch/kl"] == pytest.approx(weighted[0], abs=1e-5)
    assert one["mismatch/mean"] == pytest.approx(weighted[1], abs=1e-5)
    assert one["mismatch/max"] == one["mismatch/rollout_max"] or one["mismatch/max"] == pytest.approx(0.03, abs=1e-5)
    assert one["mismatch/rollout_max"] == pytest.approx(0.03, abs=1e-5)
    assert one["said"] == []


@pytest.mark.parametrize("trainer", [{"loss": "real", **OLD_FIRST}, DEALT], ids=["real", "grpo"])
def test_unrelated_ones_stop_every_rank_and_say_where_to_look(report, trainer):
    one, other = report([2.0, 2.0], **trainer)
    assert one == other
    assert one["stopped"].startswith(f"vLLM and the policy are unrelated in optimizer step {one['step']}:")
    assert "differ by 2 on average" in one["stopped"] and "with LoRA: are the adapters in it?" in one["stopped"]
