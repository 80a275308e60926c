"""A vLLM rollout actor whose verifier hangs, dies and runs out of memory goes on, and counts what had no verdict."""

import json
from pathlib import Path

FAULTS = {"hang": r"\clubsuit", "oom": r"\heartsuit", "exit": r"\spadesuit"}


# each fault for one prompt of eight: every one of them costs a worker
PROMPTS = ["0123=", "1234=", "2345=", "3456=", "4567=", "5678=", "6789=", "7890="]


def test_training_survives_a_failing_verifier(train, tmp_path):
    calls, data = tmp_path / "calls", tmp_path / "prompts.jsonl"
    rows = ({"prompt": prompt, "label": prompt[3::-1], "datasource": "reverse"} for prompt in PROMPTS)
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = train(
        "faults", "--algo", "real", "--max-steps", "1", "--data", str(data),
        "--reward.remote_url", str(Path(__file__).parent / "boxed_reward.py"),
        "--rollout.batch_size", "8", "--train.batch_size", "32", "--no-eval.at_start", "--no-eval.at_end",
        environment={"REAL_VERIFIER_FAULTS": json.dumps(FAULTS), "BOXED_REWARD_CALLS": str(calls)},
    )  # fmt: skip
    (step,) = run.lines("train")
    first_digits = calls.read_text().split()
    assert sorted(first_digits) == sorted(prompt[0] for prompt in PROMPTS for _ in range(8))
    assert step["rollout/ignored"] == 3 / 8 and step["real/ignored"] == 3 / 8
    for reason in ("timeout", "out_of_memory", "worker_died"):
        assert step[f"verifier/ignored_{reason}"] == 1 / 8, reason
