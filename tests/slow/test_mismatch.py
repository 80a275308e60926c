"""Both trainers tell how far the sampler is from the policy, over all ranks, and stop where the two are unrelated."""

import pytest

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


@pytest.mark.parametrize(
    "trainer", [{"loss": "real", "old_log_probs": "always"}, {**DEALT, "deal": "upstream"}], ids=["real", "grpo"]
)
def test_unrelated_ones_stop_every_rank_and_say_where_to_look(report, trainer):
    one, other = report([2.0, 2.0], **trainer)
    assert one == other
    assert one["stopped"].startswith(f"vLLM and the policy are unrelated in optimizer step {one['step']}:")
    assert "differ by 2 on average" in one["stopped"] and "with LoRA: are the adapters in it?" in one["stopped"]
