"""Prompts of more than the 2,048 tokens that vLLM reads in a step, in sum and one alone; and an engine that dies.

Their model and reward are those of an engine of their own, which all runs here share.
"""

import json
import random

import pytest
from small_runs import NO_EVALUATION

from real_openrlhf.training.tasks import tiny_model
from real_openrlhf.training.tasks.reverse_task import DIGIT_SET, ReverseTask

LENGTHS = (2400, 900, 700, 600, 500, 400, 300, 200)  # tokens

# It differs among responses, without reading them. For the label `kill` it kills the vLLM engine first.
REWARD = """import multiprocessing
import os
import signal
import zlib


def reward_func(queries, prompts, labels):
    if labels[0] == "kill":
        (engine,) = (child for child in multiprocessing.active_children() if child.name == "EngineCore")
        os.kill(engine.pid, signal.SIGKILL)
    return {"rewards": float(zlib.crc32(queries[0].encode()) % 2)}
"""


class LongTask(ReverseTask):
    positions = 2432


@pytest.fixture(scope="module")
def train_long(new_session, tmp_path_factory):
    """train_long(name, flags...) -> Run."""
    folder = tmp_path_factory.mktemp("long")
    tokenizer = tiny_model.make_tokenizer(LongTask)
    model = tiny_model.make_model(LongTask, tokenizer, seed=0)
    model.bfloat16().save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    draw = random.Random(0)
    prompts = ["".join(draw.choices(DIGIT_SET, k=length)) for length in LENGTHS]
    for label in ("same", "kill"):
        rows = ({"prompt": prompt, "label": label, "datasource": "long"} for prompt in prompts)
        (folder / f"{label}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text(REWARD)
    layout = (
        *("--model", str(folder / "model"), "--data.max_len", str(LongTask.positions)),
        *("--reward.remote_url", str(folder / "reward.py")),
        *("--rollout.batch_size", "8", "--rollout.n_samples_per_prompt", "2", "--train.batch_size", "8"),
        *("--train.micro_batch_size", "2", "--rollout.micro_batch_size", "2", "--rollout.max_new_tokens", "8"),
        *("--ds.share_prompts", "--ds.attn_implementation", "sdpa", "--vllm.enable_prefix_caching"),
        *(*NO_EVALUATION, "--max-steps", "1", "--seed", "1"),
    )
    shared = new_session(folder, layout)
    with shared.stack:
        yield lambda name, label, code=0: shared.train(name, "--data", str(folder / f"{label}.jsonl"), code=code)


def test_two_seeded_runs_are_equal_bit_for_bit(train_long):
    one, other = (train_long(f"long-{number}", "same") for number in (1, 2))
    assert one.finite and one.numbers() == other.numbers()
    assert 0 < one.values("rollout/pass_rate")[0] < 1
    assert 0 < one.values("actor_grad_norm")[0]


def test_a_dead_engines_signal_is_the_runs_last_word(train_long):
    """In a session, as `compare` trains; `train` hears of it in the same way."""
    run = train_long("killed-engine", "kill", code=1)
    assert json.loads((run.folder / "run.json").read_text())["reason"].startswith(
        "vLLM's engine process was killed by SIGKILL"
    )
    assert "failed (vLLM's engine process was killed by SIGKILL" in run.output
