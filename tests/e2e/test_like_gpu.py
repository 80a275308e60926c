"""The paths of a GPU run, LoRA, random Qwen3 and Gemma 3 by vLLM's own classes, prompts of more than the 2,048 tokens
that vLLM reads in a step, and an engine that dies. Two ranks: another file.
"""

import json
import random

import pytest
import tiny_task
import torch
from every import EVERY
from small_runs import NO_EVALUATION
from tiny_task import DIGIT_SET, ReverseTask, make_tokenizer
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3Config, Qwen3ForCausalLM

# Random models that vLLM reads with its own classes

SHAPE = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
    head_dim=32, max_position_embeddings=64, bos_token_id=None, initializer_range=0.08,
)  # fmt: skip
GEMMA = dict(sliding_window=8, query_pre_attn_scalar=32, tie_word_embeddings=True)
# the recipes' own prompts and temperatures are not the same
SAME = ("--seed", "1", "--rollout.temperature", "1.0", "--no-data.apply_chat_template")
SAME += ("--ds.grad_accum_dtype", "fp32")
ONE_UPDATE = ("--rollout.batch_size", "8", "--train.batch_size", "64")  # a step
HALF_RIGHT = '''
import zlib
def reward_func(queries, prompts, labels):
    """Every second answer is right: a random model has something to learn."""
    return {"rewards": [zlib.crc32(query.encode()) % 2 for query in queries]}
'''


@pytest.fixture
def train_random(train, tmp_path):
    """train_random(name, model class, configuration, flags...) -> Run."""

    def start(name: str, model_class, config, *flags: str):
        torch.manual_seed(0)
        tokenizer = make_tokenizer(ReverseTask)
        ends = dict(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
        model_class(config(**SHAPE, **ends, vocab_size=len(tokenizer))).bfloat16().save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        (tmp_path / "reward.py").write_text(HALF_RIGHT)
        files = ("--model", str(tmp_path), "--reward.remote_url", str(tmp_path / "reward.py"))
        run = train(name, *files, *SAME, *ONE_UPDATE, "--max-steps", "2", *NO_EVALUATION, *flags)
        assert run.finite and min(run.values("actor_grad_norm")) > 0
        assert run.values("rollout/pass_rate")[0] > 0.2
        return run

    return start


def test_the_paths_of_a_gpu_run_have_the_plain_recipes_update_and_vllm_the_new_weights(train_random):
    """Packing, token budgets, sleep, recomputation. The second step's answers are of the weights that the first one
    trained: older ones differ by 0.4 and more. What packing changes, the sampler sees too, which packs nothing, and
    fast/test_attention.py in gradients; the plain run beside this one is of `run.sh every`."""
    packed, *others = [
        train_random(f"random-{recipe}", Qwen3ForCausalLM, Qwen3Config, "--recipe", recipe, "--actor.adam.lr", "1e-2")
        for recipe in ("cpu-like-gpu", *["cpu"] * EVERY)
    ]
    for run in (packed, *others):
        assert max(run.values("sampling/logprob_diff_mean")) < 0.1
    first = packed.lines("train")[0]
    for plain in (run.lines("train")[0] for run in others):
        for name in ("rollout/prompts_crc", "update/rollouts_crc", "rollout/pass_rate"):
            assert first[name] == plain[name]
        assert first["policy_loss"] == pytest.approx(plain["policy_loss"], rel=1e-3)
        assert first["actor_grad_norm"] == pytest.approx(plain["actor_grad_norm"], rel=1e-2)


def test_vllm_samples_from_a_base_model_with_trained_adapters(train_random):
    """Of Gemma 3: its own classes, a window, tied embeddings."""
    adapters = ("--ds.lora.rank", "16", "--ds.lora.alpha", "32", "--actor.adam.lr", "3e-2")
    run = train_random("lora", Gemma3ForCausalLM, lambda **sizes: Gemma3TextConfig(**sizes, **GEMMA), *adapters)
    assert max(run.values("sampling/logprob_diff_mean")) < 0.1  # the base model's differ by 0.6
    assert (run.folder / "model" / "adapter_config.json").exists()


# Prompts longer than a step of vLLM, and an engine that dies

LENGTHS = (2400, 900, 700, 600, 500, 400, 300, 200)  # tokens

# It differs among responses, without reading them. In the second step it kills the vLLM engine.
REWARD = """import multiprocessing
import os
import signal
import zlib

calls = []


def reward_func(queries, prompts, labels):
    calls.append(1)
    if len(calls) > 16:
        (engine,) = (child for child in multiprocessing.active_children() if child.name == "EngineCore")
        os.kill(engine.pid, signal.SIGKILL)
    return {"rewards": float(zlib.crc32(queries[0].encode()) % 2)}
"""


class LongTask(ReverseTask):
    positions = 2432


def test_seeded_samples_of_long_prompts_train_until_the_engine_is_killed(train, tmp_path):
    """vLLM would cut such a prompt, and die of its generator."""
    tokenizer = tiny_task.make_tokenizer(LongTask)
    tiny_task.make_model(LongTask, tokenizer, seed=0).bfloat16().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    draw = random.Random(0)
    rows = ({"prompt": "".join(draw.choices(DIGIT_SET, k=length)), "label": "1"} for length in LENGTHS)
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(REWARD)
    run = train(
        *("long", "--model", str(tmp_path / "model"), "--data.max_len", str(LongTask.positions)),
        *("--data", str(tmp_path / "long.jsonl"), "--reward.remote_url", str(tmp_path / "reward.py")),
        *("--rollout.batch_size", "8", "--rollout.n_samples_per_prompt", "2", "--train.batch_size", "8"),
        *("--train.micro_batch_size", "2", "--rollout.micro_batch_size", "2", "--rollout.max_new_tokens", "8"),
        *(*NO_EVALUATION, "--max-steps", "2", "--seed", "1"),
        code=1,
    )
    assert run.finite and 0 < run.values("rollout/pass_rate")[0] < 1 and run.values("actor_grad_norm")[0] > 0
    assert "EngineDeadError" in run.output and "continue it: the same command with --resume" in run.output
