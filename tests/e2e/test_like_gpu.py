"""Recipes and models end to end: the paths of a GPU run, LoRA, random Qwen3 and Gemma 3 by vLLM's own classes, prompts
of more than the 2,048 tokens that vLLM reads in a step, and an engine that dies. Two ranks: another file.
"""

import json
import random

import pytest
import tiny_task
import torch
from every import every
from small_runs import LEARNING, NO_EVALUATION
from tiny_task import DIGIT_SET, ReverseTask, make_tokenizer
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3Config, Qwen3ForCausalLM

# packing, token budgets, sleep, recomputation give the plain CPU recipe's update

# the recipes' own prompts and temperatures are not the same
SAME = ("--seed", "1", "--rollout.temperature", "1.0", "--no-data.apply_chat_template")
SAME += ("--ds.grad_accum_dtype", "fp32")
# one update of all 64 rollouts: after it the two policies are two
ONE = ("--rollout.batch_size", "8", "--train.batch_size", "64")
ONE_UPDATE = (*ONE, "--max-steps", "1", *NO_EVALUATION)


def test_the_first_update_is_the_plain_recipes(train):
    runs = [train(f"real-{recipe}", "--recipe", recipe, *SAME, *ONE_UPDATE) for recipe in ("cpu", "cpu-like-gpu")]
    (plain,), (found,) = (run.lines("train") for run in runs)
    assert runs[1].finite
    for name in ("rollout/prompts_crc", "update/rollouts_crc", "rollout/pass_rate"):
        assert found[name] == plain[name]
    assert found["policy_loss"] == pytest.approx(plain["policy_loss"], rel=1e-3)
    assert found["actor_grad_norm"] == pytest.approx(plain["actor_grad_norm"], rel=1e-2)


# A LoRA policy on the real stack: vLLM samples from the base model with the adapters added in, step after step

ADAPTERS = (*LEARNING, "--ds.lora.rank", "16", "--ds.lora.alpha", "32", "--actor.adam.lr", "5e-4")


def test_a_lora_policy_learns_in_what_vllm_samples(train):
    run = train("lora", "--max-steps", "12", *NO_EVALUATION, *ADAPTERS)
    rates = run.values("rollout/pass_rate")
    assert rates[0] < 0.2  # adapters begin at zero: the base model
    assert sum(rates[-3:]) / 3 > 0.35  # vLLM's own rollouts are right more often: it has the trained weights
    assert (
        max(run.values("sampling/logprob_diff_mean")) < 1 / 16
    )  # what vLLM says of its samples is what the policy says
    assert (run.folder / "model" / "adapter_config.json").exists()


# Random models

SHAPE = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
    head_dim=32, max_position_embeddings=64, bos_token_id=None, initializer_range=0.08,
)  # fmt: skip
GEMMA = dict(sliding_window=8, query_pre_attn_scalar=32, tie_word_embeddings=True)
MODELS = {
    "cpu-like-gpu": (Qwen3ForCausalLM, Qwen3Config, {}),
    "cpu": (Gemma3ForCausalLM, Gemma3TextConfig, GEMMA),
}
HALF_RIGHT = '''
import zlib
def reward_func(queries, prompts, labels):
    """Every second answer is right: a random model has something to learn."""
    return {"rewards": [zlib.crc32(query.encode()) % 2 for query in queries]}
'''


@pytest.mark.parametrize("recipe", [pytest.param("cpu-like-gpu", marks=every), "cpu"])
def test_a_random_model_trains_and_vllm_has_its_weights(train, tmp_path, recipe):
    model_class, config, own = MODELS[recipe]
    torch.manual_seed(0)
    tokenizer = make_tokenizer(ReverseTask)
    ends = dict(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
    model_class(config(**SHAPE, **own, **ends, vocab_size=len(tokenizer))).bfloat16().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "reward.py").write_text(HALF_RIGHT)
    size = ("--rollout.batch_size", "8", "--train.batch_size", "32", "--max-steps", "2", *NO_EVALUATION)
    flags = ("--recipe", recipe, "--model", str(tmp_path), "--reward.remote_url", str(tmp_path / "reward.py"))
    data = ("--no-data.apply_chat_template",) if recipe == "cpu-like-gpu" else ()
    run = train(f"random-{recipe}", *flags, *data, *size, "--actor.adam.lr", "3e-3", "--rollout.temperature", "1.0")
    assert run.finite and min(run.values("actor_grad_norm")) > 0
    first, second = run.values("sampling/logprob_diff_mean")
    # the second step's answers are of the weights that the first one trained: older ones differ by 0.4 and more
    assert max(first, second) < 0.1
    assert run.values("rollout/pass_rate")[0] > 0.2


# Prompts longer than a step of vLLM

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
