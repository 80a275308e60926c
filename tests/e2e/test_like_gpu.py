"""The paths of a GPU run on CPU: packing, token budgets, sleep, recomputation give the plain CPU recipe's update.

On two ranks: test_train_on_two_ranks.py.
"""

import pytest
from small_runs import LEARNING, NO_EVALUATION

# the recipes' own prompts and temperatures are not the same
SAME = ("--seed", "1", "--rollout.temperature", "1.0", "--no-data.apply_chat_template")
SAME += ("--ds.grad_accum_dtype", "fp32")
# one update of all 64 rollouts: after it the two policies are two
SIZE = ("--rollout.batch_size", "8", "--train.batch_size", "64")
ONE_UPDATE = (*SIZE, "--max-steps", "1", *NO_EVALUATION)


def test_the_first_update_is_the_plain_recipes(train):
    runs = [train(f"real-{recipe}", "--recipe", recipe, *SAME, *ONE_UPDATE) for recipe in ("cpu", "cpu-like-gpu")]
    (plain,), (found,) = (run.lines("train") for run in runs)
    assert runs[1].finite
    for name in ("rollout/prompts_crc", "update/rollouts_crc", "rollout/pass_rate"):
        assert found[name] == plain[name]
    assert found["policy_loss"] == pytest.approx(plain["policy_loss"], rel=1e-3)
    assert found["actor_grad_norm"] == pytest.approx(plain["actor_grad_norm"], rel=1e-2)


# A LoRA policy on the real stack: vLLM samples from the base model with the adapters added in, step after step

FLAGS = (*LEARNING, "--ds.lora.rank", "16", "--ds.lora.alpha", "32", "--actor.adam.lr", "5e-4")


def test_a_lora_policy_learns_in_what_vllm_samples(train):
    run = train("lora", "--max-steps", "12", *NO_EVALUATION, *FLAGS)
    rates = run.values("rollout/pass_rate")
    assert rates[0] < 0.2  # adapters begin at zero: the base model
    assert sum(rates[-3:]) / 3 > 0.35  # vLLM's own rollouts are right more often: it has the trained weights
    assert (
        max(run.values("sampling/logprob_diff_mean")) < 1 / 16
    )  # what vLLM says of its samples is what the policy says
    assert (run.folder / "model" / "adapter_config.json").exists()
