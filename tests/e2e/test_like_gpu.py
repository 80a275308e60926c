"""Random Gemma 3 and Qwen3 by vLLM's own classes: LoRA, prompts of more than the 2,048 tokens that vLLM reads in a
step, and the paths of a GPU run beside the plain ones. Two ranks: another file.
"""

import json
import random

import pytest
import torch
from every import every
from small_runs import NO_EVALUATION
from tiny_task import DIGIT_SET, ReverseTask, make_tokenizer
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen3Config, Qwen3ForCausalLM

# Random models that vLLM reads with its own classes

SHAPE = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=1,
    head_dim=32, max_position_embeddings=2432, bos_token_id=None, initializer_range=0.08,
)  # fmt: skip
GEMMA = dict(sliding_window=8, query_pre_attn_scalar=32, tie_word_embeddings=True)
# the recipes' own prompts and temperatures are not the same
SAME = ("--seed", "1", "--rollout.temperature", "1.0", "--no-data.apply_chat_template", "--max-steps", "2")
SAME += ("--ds.grad_accum_dtype", "fp32", "--rollout.batch_size", "8", "--train.batch_size", "64")  # one update a step
HALF_RIGHT = '''
import zlib
def reward_func(queries, prompts, labels):
    """Every second answer is right: a random model has something to learn."""
    return {"rewards": [zlib.crc32(query.encode()) % 2 for query in queries]}
'''


LENGTHS = (2100, 300, 100, 100, 60, 60, 60, 60)  # tokens


class LongTask(ReverseTask):
    positions = 2432


@pytest.fixture
def train_random(train, tmp_path):
    """train_random(name, model class, configuration, flags...) -> Run."""

    def start(name: str, model_class, config, *flags: str):
        torch.manual_seed(0)
        tokenizer = make_tokenizer(LongTask)
        ends = dict(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
        model_class(config(**SHAPE, **ends, vocab_size=len(tokenizer))).bfloat16().save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        (tmp_path / "reward.py").write_text(HALF_RIGHT)
        files = ("--model", str(tmp_path), "--reward.remote_url", str(tmp_path / "reward.py"))
        run = train(name, *files, *SAME, *NO_EVALUATION, *flags)
        assert run.finite and min(run.values("actor_grad_norm")) > 0
        assert run.values("rollout/pass_rate")[0] > 0
        # vLLM's second answers are of the weights that the first step trained: older ones differed by 0.4 and more
        assert max(run.values("sampling/logprob_diff_mean")) < 0.1
        return run

    return start


@every  # one of them rehearses by default, and a packed forward is compared in fast/test_attention.py
def test_the_paths_of_a_gpu_run_have_the_plain_recipes_update_and_vllm_the_new_weights(train_random):
    """Packing, token budgets, sleep, recomputation."""
    packed, plain = (
        train_random(f"random-{recipe}", Qwen3ForCausalLM, Qwen3Config, "--recipe", recipe, "--actor.adam.lr", "1e-2")
        for recipe in ("cpu-like-gpu", "cpu")
    )
    first, other = packed.lines("train")[0], plain.lines("train")[0]
    for name in ("rollout/prompts_crc", "update/rollouts_crc", "rollout/pass_rate"):
        assert first[name] == other[name]
    assert first["policy_loss"] == pytest.approx(other["policy_loss"], rel=1e-3)
    assert first["actor_grad_norm"] == pytest.approx(other["actor_grad_norm"], rel=1e-2)


def test_vllm_samples_from_a_base_model_with_trained_adapters_and_from_long_prompts(train_random, tmp_path):
    """Gemma 3: its own classes, a window, tied embeddings. vLLM would cut such a prompt, and die of its generator."""
    draw = random.Random(0)
    rows = ({"prompt": "".join(draw.choices(DIGIT_SET, k=length)), "label": "1"} for length in LENGTHS)
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    adapters = ("--ds.lora.rank", "16", "--ds.lora.alpha", "32", "--actor.adam.lr", "3e-2")
    long = ("--data", str(tmp_path / "long.jsonl"), "--data.max_len", str(LongTask.positions))
    long += ("--rollout.n_samples_per_prompt", "2", "--train.batch_size", "16", "--rollout.max_new_tokens", "8")
    long += ("--train.micro_batch_size", "1", "--rollout.micro_batch_size", "1", "--train.num_episodes", "2")
    run = train_random("lora", Gemma3ForCausalLM, lambda **sizes: Gemma3TextConfig(**sizes, **GEMMA), *adapters, *long)
    assert (run.folder / "model" / "adapter_config.json").exists()
