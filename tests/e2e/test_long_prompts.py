"""Prompts of more than the 2,048 tokens that vLLM reads in a step, in sum and one alone; and an engine that dies."""

import json
import random

import pytest
import tiny_task
from every import every
from small_runs import NO_EVALUATION
from tiny_task import DIGIT_SET, ReverseTask

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
def train_long(train, tmp_path_factory):
    """train_long(name, flags...) -> Run."""
    folder = tmp_path_factory.mktemp("long")
    tokenizer = tiny_task.make_tokenizer(LongTask)
    model = tiny_task.make_model(LongTask, tokenizer, seed=0)
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
        *(*NO_EVALUATION, "--max-steps", "1", "--seed", "1"),
    )
    return lambda name, label, code=0: train(name, *layout, "--data", str(folder / f"{label}.jsonl"), code=code)


def test_seeded_samples_of_long_prompts_train(train_long):
    """vLLM would cut such a prompt, and die of its generator."""
    run = train_long("long", "same")
    assert run.finite and 0 < run.values("rollout/pass_rate")[0] < 1 and run.values("actor_grad_norm")[0] > 0


@every
def test_a_run_whose_engine_is_killed_ends(train_long):
    assert "continue it: the same command with --resume" in train_long("killed-engine", "kill", code=1).output
