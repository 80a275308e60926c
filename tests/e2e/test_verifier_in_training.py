"""A vLLM rollout actor whose verifier hangs, dies and runs out of memory goes on, and counts what it could not judge."""

import json
from pathlib import Path

FAULTS = {"hang": r"\clubsuit", "oom": r"\heartsuit", "exit": r"\spadesuit"}


def test_training_survives_a_failing_verifier(train, tmp_path):
    calls = tmp_path / "calls"
    run = train(
        "faults", "--algo", "real", "--max-steps", "3", "--reward.remote_url", str(Path(__file__).parent / "boxed_reward.py"),
        "--rollout.batch_size", "16", "--train.batch_size", "64", "--no-eval.at_start", "--no-eval.at_end",
        environment={"REAL_VERIFIER_FAULTS": json.dumps(FAULTS), "BOXED_REWARD_CALLS": str(calls)},
    )  # fmt: skip
    steps = run.lines("train")
    assert [step["step"] for step in steps] == [1, 2, 3]
    first_digits = calls.read_text().split()
    assert len(first_digits) == 3 * 16 * 8
    marked = sum(digit in "012" for digit in first_digits)
    assert marked > 0
    ignored = sum(step["rollout/ignored"] for step in steps) * 16 * 8
    assert round(ignored) == marked
    assert round(sum(step["real/ignored"] for step in steps) * 16 * 8) == marked
    assert all(0 < step["rollout/pass_rate"] < 1 for step in steps)  # the others are judged
    for reason, digit in (("timeout", "0"), ("out_of_memory", "1"), ("worker_died", "2")):
        counted = sum(step[f"verifier/ignored_{reason}"] for step in steps) * 16 * 8
        assert round(counted) == first_digits.count(digit)
