"""The paths of a GPU run on CPU: packing, token budgets, sleep, recomputation give the plain CPU recipe's steps.

On two ranks: test_train_on_two_ranks.py (GRPO) and test_verifier_in_training.py (REAL).
"""

import json

import pytest

# what compare's runs had: the recipe's own prompts and temperature are the paper's
AS_COMPARED = ("--seed", "1", "--rollout.temperature", "1.0", "--no-data.apply_chat_template")
STEP = ("--max-steps", "1", "--no-eval.at_start", "--no-eval.at_end")


@pytest.mark.parametrize("algo", ["real", "grpo"])
def test_the_first_step_is_the_plain_recipes(train, compared, algo):
    run = train(f"{algo}-like-gpu", "--recipe", "cpu-like-gpu", "--algo", algo, *AS_COMPARED, *STEP)
    (found,) = run.lines("train")
    lines = map(json.loads, (compared.run(algo) / "metrics.jsonl").read_text().splitlines())
    plain = next(line for line in lines if line["phase"] == "train")
    assert run.finite
    for name in ("rollout/prompts_crc", "update/rollouts_crc", "rollout/pass_rate"):
        assert found[name] == plain[name]
    # of four updates, in bf16, and this recipe adds gradients up in fp32; GRPO's loss is near 0, a difference of ones
    assert found["policy_loss"] == pytest.approx(plain["policy_loss"], rel=1e-3, abs=5e-3)
    assert found["actor_grad_norm"] == pytest.approx(plain["actor_grad_norm"], rel=3e-2)
    assert "flash-attn's place is taken by plain torch" in run.log
