"""The paths of a GPU run on CPU: packing, token budgets, sleep, recomputation give the plain CPU recipe's steps."""

import pytest

STEP = ("--seed", "3", "--max-steps", "2", "--no-eval.at_start", "--no-eval.at_end")
LIKE_GPU = ("--recipe", "cpu-like-gpu")
# the same prompts and rollouts by the plain recipe's way
PLAIN = ("--data.apply_chat_template", "--rollout.temperature", "0.6")


@pytest.fixture(scope="module", params=["real", "grpo"])
def pair(train, request):
    """(the run as on GPUs, the plain one) of one method."""
    algo = request.param
    words = ("--algo", algo, *STEP)
    return train(f"{algo}-like-gpu", *words, *LIKE_GPU), train(f"{algo}-plain", *words, *PLAIN)


def test_the_first_step_is_the_plain_recipes(pair):
    like_gpu, plain = (run.lines("train") for run in pair)
    assert pair[0].finite and len(like_gpu) == 2
    for name in ("rollout/prompts_crc", "update/rollouts_crc", "rollout/pass_rate"):
        assert like_gpu[0][name] == plain[0][name]
    assert like_gpu[0]["policy_loss"] == pytest.approx(plain[0]["policy_loss"], rel=1e-3, abs=1e-3)
    assert like_gpu[0]["actor_grad_norm"] == pytest.approx(plain[0]["actor_grad_norm"], rel=1e-2)


def test_the_log_names_the_stand_in(pair):
    assert "flash-attn's place is taken by plain torch" in pair[0].log
    assert "flash-attn's place is taken by plain torch" not in pair[1].log


def test_real_packed_on_two_ranks(train_on_two):
    run = train_on_two("real-like-gpu-on-two", "--algo", "real", *STEP, *LIKE_GPU)
    assert run.finite and len(run.lines("train")) == 2
    assert run.values("actor_grad_norm")[0] > 0
