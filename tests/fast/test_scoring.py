"""Which way of scoring is chosen: a function of the layout, the objective and a memory estimate."""

from types import SimpleNamespace

import pytest

from real_openrlhf.algorithm.scoring import (
    choose_scoring,
    graph_bytes_per_token,
    scored_at_once,
    updates_per_rollout,
    whole_groups,
)

# Qwen2.5-Math-7B's config.json
QWEN_7B = SimpleNamespace(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, vocab_size=152064)
PLENTY = 1e15


def settings(
    scoring="auto",
    objective="real",
    prompts=128,
    group=8,
    batch=256,
    micro=1,
    epochs=1,
    max_tokens=None,
    max_len=9216,
    checkpointing=True,
    disco_kl_coef=1000.0,
):
    return SimpleNamespace(
        actor=SimpleNamespace(gradient_checkpointing_enable=checkpointing),
        algo=SimpleNamespace(real=SimpleNamespace(scoring=scoring, objective=objective, disco_kl_coef=disco_kl_coef)),
        data=SimpleNamespace(max_len=max_len),
        rollout=SimpleNamespace(batch_size=prompts, n_samples_per_prompt=group),
        train=SimpleNamespace(
            batch_size=batch,
            micro_batch_size=micro,
            max_epochs=epochs,
            dynamic_batch_enable=max_tokens is not None,
            max_tokens_per_gpu=max_tokens,
        ),
    )


def choose(free_bytes=PLENTY, ranks=8, **changes) -> tuple[str, str]:
    return choose_scoring(settings(**changes), ranks, QWEN_7B, free_bytes)


@pytest.mark.parametrize("way", ["micro_batch", "deferred", "separate"])
@pytest.mark.parametrize("free_bytes", [0, PLENTY])
def test_what_was_asked_for_is_done(way, free_bytes):
    assert choose(scoring=way, free_bytes=free_bytes) == (way, "as asked")
    assert whole_groups(settings(scoring=way, micro=1), 8) is (way == "micro_batch")


@pytest.mark.parametrize(
    "layout, whole",
    [
        (dict(micro=8), True),
        (dict(micro=16), True),
        (dict(micro=4), False),
        (dict(micro=12), False),  # the second group would be torn
        (dict(micro=8, batch=8 * 12), False),  # 12 groups over 8 ranks: some would train 1, some 2
        (dict(max_tokens=8 * 9216), True),
        (dict(max_tokens=8 * 9216 - 1), False),  # eight rollouts of full length may not fit
        (dict(max_tokens=8 * 9216, batch=8 * 12), False),
    ],
)
def test_groups_stay_whole_where_that_costs_nothing(layout, whole):
    assert whole_groups(settings(**layout), 8) is whole
    assert (choose(**layout)[0] == "micro_batch") is whole


@pytest.mark.parametrize("objective", ["disco_logl", "disco_lratio"])
@pytest.mark.parametrize("layout", [dict(micro=8), dict(max_tokens=8 * 9216), dict(micro=1)])
def test_discos_constraint_is_on_the_whole_step_so_no_micro_batch_goes_first(objective, layout):
    assert whole_groups(settings(objective=objective, **layout), 8) is False
    assert choose(objective=objective, **layout)[0] == "deferred"
    assert choose(objective=objective, free_bytes=0, **layout)[0] == "separate"
    if layout != dict(micro=1):
        assert choose(objective=objective, disco_kl_coef=0.0, **layout)[0] == "micro_batch"


def test_one_update_a_rollout_runs_nothing_extra():
    way, why = choose(batch=1024, free_bytes=0)
    assert way == "separate" and "nothing extra runs" in why
    assert choose(batch=1024, epochs=2, free_bytes=PLENTY)[0] == "deferred"  # the second epoch is not on policy


@pytest.mark.parametrize(
    "changes, updates",
    [
        (dict(), 4),
        (dict(batch=1024), 1),
        (dict(epochs=3), 12),
        (dict(batch=256, prompts=16), 1),  # a short rollout still is one update
    ],
)
def test_updates_per_rollout(changes, updates):
    assert updates_per_rollout(settings(**changes)) == updates


def test_memory_decides_between_keeping_the_graphs_and_a_second_forward():
    need = 256 / 8 * 9216 * graph_bytes_per_token(QWEN_7B, True)
    assert choose(free_bytes=2.01 * need)[0] == "deferred"  # up to half of what is free
    way, why = choose(free_bytes=1.99 * need)
    assert way == "separate"
    assert f"{need / 1e9:.1f} GB a rank" in why and f"{1.99 * need / 1e9:.1f} GB are free" in why
    assert choose(free_bytes=2.01 * need, ranks=4)[0] == "separate"  # twice as much on each


def test_the_estimate_is_what_a_forward_keeps():
    """By hand: with checkpointing a bf16 layer input, without it 16 hidden and 4 MLP vectors; logits in float32."""
    logits = 152064 * 4 * 3
    assert graph_bytes_per_token(QWEN_7B, True) == 28 * 3584 * 2 + logits
    assert graph_bytes_per_token(QWEN_7B, False) == 28 * (16 * 3584 + 4 * 18944) * 2 + logits
    no_mlp_size = SimpleNamespace(hidden_size=10, num_hidden_layers=1, vocab_size=0)
    assert graph_bytes_per_token(no_mlp_size, False) == (16 * 10 + 4 * 40) * 2


@pytest.mark.parametrize(
    "training, without_gradient, together",
    [
        ({"micro_batch_size": 2}, {"micro_batch_size": 8}, 4),
        ({"micro_batch_size": 8}, {"micro_batch_size": 4}, 1),
        ({"max_tokens_per_gpu": 9216}, {"max_tokens_per_gpu": 18432}, 2),
        ({"max_tokens_per_gpu": 9216}, {"max_tokens_per_gpu": None}, 1),
    ],
)
def test_a_forward_without_gradient_takes_what_openrlhf_lets_it(training, without_gradient, together):
    train = SimpleNamespace(dynamic_batch_enable="max_tokens_per_gpu" in training, **training)
    assert scored_at_once(SimpleNamespace(train=train, rollout=SimpleNamespace(**without_gradient))) == together
