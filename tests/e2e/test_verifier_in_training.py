"""A rollout actor goes on whose verifier hangs, dies and runs out of memory, and whose reward function returns text or
exits: what had no verdict is counted."""

import json

import pytest
from small_runs import NO_EVALUATION

# failing_reward.py has the verifier judge these; each fault is for one of the eight, as every fault costs a worker
JUDGED = ["0123=", "1234=", "2345=", "3456=", "4567=", "5678=", "6789=", "7891="]


def test_training_survives_a_failing_verifier(train_on_two, reward_calls, tmp_path):
    data = tmp_path / "prompts.jsonl"
    prompts = [*JUDGED, "8901=", "9012="]
    rows = ({"prompt": prompt, "label": prompt[3::-1], "datasource": "reverse"} for prompt in prompts)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train_on_two(
        "faults", "--recipe", "cpu-like-gpu", "--algo", "real", "--max-steps", "1", "--data", str(data),
        "--rollout.batch_size", "10", "--rollout.n_samples_per_prompt", "4", "--train.batch_size", "20",
        *NO_EVALUATION,
    )  # fmt: skip
    devices = json.loads(reward_calls.with_name("calls.devices").read_text())
    assert devices == {"CUDA_VISIBLE_DEVICES": "-1", "DS_ACCELERATOR": "cpu", "VLLM_USE_FLASHINFER_SAMPLER": "0"}
    (step,) = run.lines("train")
    assert run.finite and step["actor_grad_norm"] > 0
    assert sorted(reward_calls.read_text().split()) == sorted(prompt for prompt in JUDGED for _ in range(4))
    assert step["rollout/ignored"] == 5 / 10 and step["real/ignored"] == 5 / 10
    for reason in ("timeout", "out_of_memory", "worker_died"):
        assert step[f"verifier/ignored_{reason}"] == pytest.approx(1 / 10), reason
    for fault in ("no_number", "exits"):
        assert step[f"reward/failed_{fault}"] == pytest.approx(1 / 10), fault
